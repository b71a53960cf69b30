import t from 'tap'
import { expectedLogin, readJson } from './expected-logins.ts'

const login = { accountId: 'a', accessKey: 'k', secret: 's' }
const fields = (...lines: [string, string][]) =>
  lines.map(([name, value]) => ({ name, value, padded: false }))
const answers = (body: string, ...lines: [string, string][]) => expectedLogin(fields(...lines), body, [login])

t.test('a login is judged by its header and its body', async (t) => {
  const good = JSON.stringify(login)
  t.same(answers(good), ['200 '])
  t.same(answers(good, ['content-type', 'application/json; charset=UTF-8']), ['200 '])
  t.same(answers(good, ['Content-Type', 'text/plain']), ['400 InvalidArgument'])
  t.same(answers(good, ['Content-Encoding', 'gzip']), ['400 InvalidArgument'])
  t.same(answers(JSON.stringify({ ...login, secret: 'x' })), [
    '403 Authentication failed',
    '400 InvalidArgument',
  ])
  for (const bad of [
    { ...login, secret: 1 },
    { ...login, secret: '' },
    { accountId: 'a' },
    [login],
    null,
    'x'.repeat(17_000),
  ]) {
    t.same(answers(JSON.stringify(bad)), ['400 InvalidArgument'])
  }
})

t.test('JSON is read by the letter, and a key that stands twice is none', async (t) => {
  t.same(readJson('{"a":[{"b":1},{"b":2}],"c":{"a":"\\"a\\":"}}'), {
    a: [{ b: 1 }, { b: 2 }],
    c: { a: '"a":' },
  })
  for (const bad of [
    '{"a":1,"a":1}',
    '{"a":1,"\\u0061":2}',
    '{"x":[{"b":1,"c":[],"b":2}]}',
    '{} x',
    '{a:1}',
    '\xef\xbb\xbf{}',
    '"\xff"',
  ]) {
    t.equal(readJson(bad), undefined, bad)
  }
})
