/** Targets of links. Their use: test/e2e/links.test.ts. */
import t from 'tap'
import { linkTarget, linkTargetProblem } from '../../src/token/links.ts'

/** Returns an empty text if the target is refused. */
function targetOf(requested: string): string {
  const target = linkTarget(requested)
  return linkTargetProblem(target) === undefined ? target : ''
}

t.test('a target is bound as browsers send it', async (t) => {
  for (const [requested, bound] of [
    ['/a/b?x=1', '/a/b?x=1'],
    ["/it's?name='a'", "/it's?name=%27a%27"],
    ['/{a}|b^c`d', '/%7Ba%7D%7Cb%5Ec%60d'],
    ['/a"b<c>d?e"f<g>', '/a%22b%3Cc%3Ed?e%22f%3Cg%3E'],
    ['/a\\b', '/a%5Cb'],
    ['/a[1]?b[]=2', '/a%5B1%5D?b%5B%5D=2'],
    ['/%e2%82%AC?%2F', '/%e2%82%AC?%2F'],
    ['/.a/b..c/...', '/.a/b..c/...'],
  ] as const) {
    t.equal(targetOf(requested), bound)
    t.equal(targetOf(bound), bound, 'what is bound stays as it is')
  }
  for (let code = 0x21; code < 0x7f; code++) {
    const character = String.fromCharCode(code)
    const bound = targetOf(`/a${character}b?c${character}d`)
    if (bound !== '') {
      const { pathname, search } = new URL(bound, 'http://storage.example')
      t.equal(pathname + search, bound, `${character} survives a WHATWG client`)
    }
  }
})

t.test('a target that a client would change is refused', async (t) => {
  for (const target of [
    'a',
    '//a',
    '/\\a/..',
    '/a b',
    '/a#b',
    '/a%',
    '/a%zz',
    '/ä',
    '/a\n',
    ...[
      '/.',
      '/..',
      '/a/./b',
      '/a/../b',
      '/a/%2e/b',
      '/a/.%2E',
      '/a/%252e%252e/b',
      '/a\\..\\b',
      '/a%2f..%2fb',
    ],
    '/a%5c..%5cb',
    '/a/..;x/b',
    '/a?',
    '/a?b&',
    '/a?b&&c',
    '/a?link_token=x',
    `/${'"'.repeat(2000)}`,
  ]) {
    t.equal(targetOf(target), '', String(target).slice(0, 30))
  }
})
