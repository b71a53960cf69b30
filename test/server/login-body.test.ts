import t from 'tap'
import { loginHeadersProblem, parseLogin } from '../../src/server/login-body.ts'

const login = { accountId: 'acme', accessKey: 'key', secret: 'hush' }

/** The message for a body; undefined when it is a login. */
function problem(body: unknown): string | undefined {
  const parsed = parseLogin(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)))
  return parsed.ok ? undefined : parsed.message
}

t.test('the content type is JSON in UTF-8 or absent, and there is no content encoding', async (t) => {
  t.equal(loginHeadersProblem(['Host', 'a']), undefined)
  for (const type of [
    ...['application/json', 'Application/JSON', 'application/json;charset=UTF-8', 'application/json;'],
    ...['application/json \t; \t charset="utf-8" ', 'application/json;; charset=utf-8;'],
  ])
    t.equal(loginHeadersProblem(['content-Type', type]), undefined, type)
  for (const type of [
    ...['', ' ', 'text/plain', 'application/x-www-form-urlencoded', 'application/json5'],
    ...['application/problem+json', 'application/json; charset=utf-16'],
    ...['application/json; charset=latin1', 'application/json; charset=utf8'],
    ...['application/json; charset=', "application/json; charset='utf-8'"],
    ...['application/json; charset = utf-8', 'application/json; charset=utf-8; charset=utf-16'],
    ...['application/json; version=1', 'application/json, application/json'],
    ...[`application/json${'; '.repeat(8000)}x`],
  ])
    t.match(loginHeadersProblem(['Content-Type', type]), /^Content-Type must be/, type.slice(0, 60))
  t.match(
    loginHeadersProblem(['Content-Type', 'application/json', 'content-type', 'application/json']),
    /must be/,
  )
  for (const coding of ['gzip', 'identity', ''])
    t.equal(loginHeadersProblem(['Content-Encoding', coding]), 'Content-Encoding is not accepted here.')
})

t.test('three strings are a login, exactly as sent, and further fields are ignored', async (t) => {
  const odd = { accountId: ' \u6771\u4eac ', accessKey: '\u{1f600}'.repeat(1024), secret: ' \0\r\ne\u0301' }
  const body = JSON.stringify({ more: [1, { accountId: 5 }], ...odd })
  t.strictSame(parseLogin(Buffer.from(body)), { ok: true, login: odd })
  t.equal(problem(`{"__proto__":{"a":1},${JSON.stringify(login).slice(1)}`), undefined)
})

t.test('every field at fault is named, and nothing that was sent is repeated', async (t) => {
  const table: readonly [unknown, string][] = [
    [{ ...login, accountId: undefined }, 'accountId is missing.'],
    [{ ...login, accessKey: 5 }, 'accessKey must be a string.'],
    [{ ...login, secret: null }, 'secret must be a string.'],
    [{ ...login, secret: ['hush'] }, 'secret must be a string.'],
    [{ ...login, secret: { toString: 'hush' } }, 'secret must be a string.'],
    [{ ...login, accountId: '' }, 'accountId must be 1 to 1024 characters long.'],
    [{ ...login, secret: 'hush'.repeat(257) }, 'secret must be 1 to 1024 characters long.'],
    [{ ...login, accessKey: 'hush\n' }, 'accessKey must not hold control characters.'],
    ['{"__proto__":{"accountId":"a"},"secret":"hush"}', 'accountId is missing. accessKey is missing.'],
    ['[]', 'The body must be a JSON object.'],
    ['null', 'The body must be a JSON object.'],
    ['"hush"', 'The body must be a JSON object.'],
  ]
  for (const [body, message] of table) t.equal(problem(body), message)
})

t.test(
  'a body that is no JSON in UTF-8, or that no string or number can represent, is refused',
  async (t) => {
    const extra = (value: string) => `{"extra":${value},${JSON.stringify(login).slice(1)}`
    for (const body of [
      ...['', ' ', '{', '{"accountId":"a",}', '{} hush', '// hush\n{}', '{"a":NaN}', 'secret=hush'],
      ...[`\ufeff${JSON.stringify(login)}`, '['.repeat(16_000), `${'['.repeat(8000)}${']'.repeat(8000)}x`],
      ...[extra('1e999'), extra('[{"x":-1e400}]'), extra('"\\ud800"')],
    ])
      t.equal(problem(body), 'The body must be JSON, in UTF-8.', body.slice(0, 40))
    t.equal(parseLogin(Buffer.from('{"accountId":"\xff"}', 'latin1')).ok, false)
    t.equal(parseLogin(Buffer.from(JSON.stringify(login), 'utf16le')).ok, false)
    for (const value of ['1e308', '[{"x":1.5}]', '"\\ud83d\\ude00"'])
      t.equal(problem(extra(value)), undefined)
  },
)
