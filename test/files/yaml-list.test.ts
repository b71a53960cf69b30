import fc from 'fast-check'
import t from 'tap'
import { z } from 'zod'
import { readPlainYaml } from '../../src/files/plain-yaml.ts'
import { parseList } from '../../src/files/yaml-list.ts'
import { parseYaml } from '../../src/files/yaml-text.ts'

const contentOf = (text: string) => {
  const parsed = parseYaml(text)
  return parsed.ok ? parsed.value.content : 'refused'
}

t.test('the layout that commands write is read without a parser', async (t) => {
  const text = `# Accounts.
accounts:
  - accountId: acme
    credentials:
      - accessKey: AK1
        secretHash: $scrypt$ln=14,r=8,p=5$c2FsdA$aGFzaA
        expiresAt: 2027-01-31T08:00:00Z
        scope: storage.read:/photos storage.create:/inbox
        disabled: true

  - accountId: "123"
    credentials:
      # The only one.
      - accessKey: 'key # 1'
`
  const content = readPlainYaml(text)
  t.not(content, undefined)
  t.same(content, contentOf(text))
})

t.test('what the plain reader reads is what the parser reads', async (t) => {
  const scalars = [
    ...[
      'acme',
      'AK-1',
      'true',
      'false',
      'True',
      'null',
      '~',
      '12',
      '-1',
      '1e3',
      '.5',
      '0x1F',
      '0o7',
      '.inf',
      '1.',
    ],
    ...[
      'a: b',
      'a:b',
      'a:',
      'a #b',
      'a#b',
      '#a',
      '- a',
      '-a',
      '&a',
      '*a',
      '!a',
      '|',
      '>',
      '[a]',
      '{a}',
      '"a"',
      "'a'",
    ],
    ...[
      '"a" b',
      "'a''b'",
      '"a\\n"',
      "'a",
      '"a',
      '2027-01-31T08:00:00Z',
      '$a$b',
      '@a',
      '`a',
      '%a',
      'a  b',
      'a ',
      '',
    ],
    ...[
      'a\tb',
      '"a\tb"',
      'é',
      '"é"',
      '?',
      '? a',
      ':',
      '-',
      '--- a',
      '...',
      'a, b',
      '=',
      '<<',
      '+1',
      '1_000',
      '1:30',
    ],
  ]
  const scalar = fc.constantFrom(...scalars)
  const key = fc.constantFrom('a', 'b', 'c', 'd', '"a"', '1', '<<', 'constructor')
  const start = fc.constantFrom(
    '',
    '  - ',
    '    ',
    '      - ',
    '        ',
    '- ',
    '  ',
    ' ',
    '  -  ',
    '\t',
    '- - ',
  )
  const member = fc.tuple(start, key, fc.constant(': '), scalar)
  const likely = fc.tuple(
    fc.constantFrom('  - ', '    '),
    fc.constantFrom('a', 'b', 'c', 'd'),
    fc.constant(': '),
    scalar,
  )
  const other = fc.constantFrom(
    ['# a'],
    [''],
    ['text'],
    ['---'],
    ['...'],
    ['list:'],
    ['    list:'],
    ['  - list:'],
  )
  const line = fc.oneof(
    { weight: 8, arbitrary: likely },
    { weight: 2, arbitrary: member },
    { weight: 1, arbitrary: other },
  )
  const lines = fc.array(
    line.map((parts) => parts.join('')),
    { minLength: 1, maxLength: 5 },
  )
  const text = lines.map((below) => ['list:', ...below].join('\n'))
  let read = 0
  fc.assert(
    fc.property(text, (text) => {
      const plain = readPlainYaml(text)
      if (plain !== undefined) {
        read++
        t.same(plain, contentOf(text), { text })
      }
    }),
    { numRuns: 20_000 },
  )
  t.ok(read > 100, `${read} texts are plain`)
})

t.test('a list that is parsed in parts has the rows and problems of the whole list', async (t) => {
  const schema = z
    .strictObject({ list: z.array(z.strictObject({ name: z.string('must be a text') })) })
    .transform(({ list }) => list.map(({ name }) => name))
  const parse = (text: string) => parseList(Buffer.from(text), { member: 'list', createSchema: () => schema })
  // Only a list with a plain name is divided.
  const parseWhole = (text: string) => parse(text.replace('\nlist:', '\n"list":'))
  const forms = [
    ...[
      'name: a',
      'name: "a b"',
      "name: 'a'",
      'name: |\n      - name: text\n      more',
      'name: "two\n      lines"',
    ],
    ...[
      'name: a # comment',
      'name: a\n    # - name: comment',
      '\n    name: a',
      '{ name: a }',
      'name: 1',
      'other: a',
      'name',
    ],
  ]
  const item = fc.oneof(
    { weight: 200, arbitrary: fc.constantFrom(...forms.slice(0, 9)) },
    { weight: 1, arbitrary: fc.constantFrom(...forms.slice(9)) },
  )
  const ends = fc.constantFrom(
    '',
    'list: []\n',
    'more: 1\n',
    '---\nlist: []\n',
    '...\n',
    '  # end\n',
    '- name: a\n',
  )
  fc.assert(
    fc.property(fc.array(item, { minLength: 1, maxLength: 180 }), ends, (items, end) => {
      const text = `# The list.\n\nlist:\n${items.map((form) => `  - ${form}\n`).join('')}${end}`
      const inParts = parse(text)
      const asWhole = parseWhole(text)
      t.equal(inParts.ok, asWhole.ok, { text, inParts, asWhole })
      if (asWhole.ok) {
        t.same(inParts, asWhole, { text })
      }
    }),
    { numRuns: 300 },
  )
  const lines = Array.from({ length: 120 }, (_, at) => `  - name: ${at === 111 ? '1' : 'a'}`)
  t.same(parse(`list:\n${lines.join('\n')}\n`), {
    ok: false,
    problems: ['113:11: list[111].name must be a text'],
  })
})
