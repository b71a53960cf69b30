import t from 'tap'
import { cutBlockList } from '../../src/yaml/block-list.ts'

/** The members and their lines; nothing when it is not such a list. */
function cut(text: string) {
  const members: (readonly [number, string])[] = []
  const steps = cutBlockList(text, 'list')
  for (;;) {
    const { done, value } = steps.next()
    if (done === true) return value ? members : undefined
    if (value !== undefined) members.push([value.line, value.text])
  }
}

t.test('a block list is cut before each dash of its column', async (t) => {
  t.same(cut('list:\n- a\n- b\n'), [
    [2, '- a\n'],
    [3, '- b\n'],
  ])
  t.same(cut('---\n# note\n\nlist: # note\n\n  # note\n  - a: 1\n    b:\n    - 2\n  # note\n\n  -\n    c'), [
    [7, '  - a: 1\n    b:\n    - 2\n  # note\n\n'],
    [12, '  -\n    c'],
  ])
  t.same(cut('list:\r\n - a\r\n - b\r\n'), [
    [2, ' - a\r\n'],
    [3, ' - b\r\n'],
  ])
  t.same(cut('list:\n- -x\n'), [[2, '- -x\n']])
})

t.test('whatever is not just that list is no such list', async (t) => {
  for (const text of [
    '',
    'list',
    'list:',
    'list:\n',
    'list: []',
    'list: [a]\n',
    '{ list: [a] }',
    '"list":\n- a\n',
    'other:\n- a\n',
    'list:\n- a\nother: 1\n',
    'other: 1\nlist:\n- a\n',
    'list:\n- a\n---\nlist:\n- b\n',
    '# note\n---\nlist:\n- a\n',
    'list:\n- a\n...\n',
    'list:\n  - a\n - b\n',
    'list:\n  - a\n- b\n',
    'list:\n  a: b\n',
    'list:\n\t- a\n',
    'list:\n  - a\n\tb\n',
    '%YAML 1.2\n---\nlist:\n- a\n',
    'list:\n- a\nb\n',
    'list:\n-a\n',
  ]) {
    t.equal(cut(text), undefined, JSON.stringify(text))
  }
})
