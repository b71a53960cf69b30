import t from 'tap'
import { checkLoginHeaders as check, MAX_LOGIN_BYTES, parseLogin } from '../../src/http/login-request.ts'

const good = { accountId: 'acme', accessKey: 'key', secret: 'hush' }

/** Checks headers, given by their lower-cased names. */
function checkHeaders(headers: Readonly<Record<string, readonly string[]>>) {
  return check((name) => headers[name] ?? [])
}

function body(value: unknown): Uint8Array {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value))
}

function messageFor(value: unknown): string | undefined {
  const parsed = parseLogin(body(value))
  return parsed.ok ? undefined : parsed.message
}

t.test('a JSON content type in UTF-8, in any of its spellings, and none at all are accepted', async (t) => {
  t.same(checkHeaders({}), { ok: true })
  for (const contentType of [
    'application/json',
    'Application/JSON',
    'application/json; charset=utf-8',
    'application/json;charset=UTF-8',
    'application/json \t; \t charset="utf-8" ',
    'application/json;',
    'application/json;; charset=utf-8;',
  ]) {
    t.same(checkHeaders({ 'content-type': [contentType] }), { ok: true }, contentType)
  }
})

t.test('any other content type is refused', async (t) => {
  for (const contentType of [
    '',
    ' ',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json5',
    'application/jsonp',
    'application/problem+json',
    'application/json; charset=utf-16',
    'application/json; charset=latin1',
    'application/json; charset=us-ascii',
    'application/json; charset=utf8',
    'application/json; charset=',
    "application/json; charset='utf-8'",
    'application/json; charset = utf-8',
    'application/json; charset=utf-8; charset=utf-8',
    'application/json; charset=utf-8; charset=utf-16',
    'application/json; version=1',
    'application/json, application/json',
    'application/json\u00a0',
    'application/json; x="charset=utf-8; "',
    `application/json${'; '.repeat(8000)}x`,
  ]) {
    t.same(
      checkHeaders({ 'content-type': [contentType] }),
      { ok: false, message: 'Content-Type must be application/json, in UTF-8.' },
      contentType.slice(0, 60),
    )
  }
  const twice = checkHeaders({ 'content-type': ['application/json', 'application/json'] })
  t.equal(twice.ok, false, 'sent twice')
})

t.test('any content encoding is refused', async (t) => {
  for (const coding of ['gzip', 'identity', '', 'x']) {
    t.same(checkHeaders({ 'content-encoding': [coding], 'content-type': ['application/json'] }), {
      ok: false,
      message: 'Content-Encoding is not accepted here.',
    })
  }
})

t.test('three strings are a login, exactly as sent, and further fields are ignored', async (t) => {
  const login = { accountId: ' 東京 ', accessKey: '😀'.repeat(1024), secret: ' \0\r\né'.normalize('NFD') }
  const parsed = parseLogin(body({ more: [1, { accountId: 5 }], ...login, __proto__x: null }))
  t.same(parsed, { ok: true, login })
  t.same(parseLogin(body('{"__proto__":{"a":1},"accountId":"a","accessKey":"b","secret":"c"}')), {
    ok: true,
    login: { accountId: 'a', accessKey: 'b', secret: 'c' },
  })
})

t.test('the fields at fault are named', async (t) => {
  const bad: [unknown, string][] = [
    [{ ...good, accountId: undefined }, 'accountId is missing.'],
    [{ ...good, accessKey: 5 }, 'accessKey must be a string.'],
    [{ ...good, secret: null }, 'secret must be a string.'],
    [{ ...good, secret: true }, 'secret must be a string.'],
    [{ ...good, secret: ['hush'] }, 'secret must be a string.'],
    [{ ...good, secret: { toString: 'hush' } }, 'secret must be a string.'],
    [{ ...good, accountId: '' }, 'accountId must be 1 to 1024 characters long.'],
    [{ ...good, secret: 'x'.repeat(1025) }, 'secret must be 1 to 1024 characters long.'],
    [{ ...good, accessKey: 'a\nb' }, 'accessKey must not hold control characters.'],
    ['{"accountId":"\\ud800","accessKey":"k","secret":"s"}', 'accountId must be well-formed Unicode.'],
    ['{"accountId":"a","accessKey":"k","secret":1e999}', 'secret must be a string.'],
    [{}, 'accountId is missing. accessKey is missing. secret is missing.'],
    [
      '{"__proto__":{"accountId":"a","accessKey":"b","secret":"c"}}',
      'accountId is missing. accessKey is missing. secret is missing.',
    ],
  ]
  for (const [value, message] of bad) t.equal(messageFor(value), message)
})

t.test('what cannot be represented is refused in fields that are ignored, too', async (t) => {
  const extra = (value: string) => `{"accountId":"a","accessKey":"k","secret":"s","extra":${value}}`
  const values = [
    '1e999',
    '[{"x":-1e400}]',
    '"\\ud800"',
    '{"\\udfff":1}',
    `${'['.repeat(6000)}${']'.repeat(6000)}`,
  ]
  for (const value of values) {
    t.match(
      messageFor(extra(value)),
      /^The body holds .* cannot be represented, or more than 32 levels\.$/,
      value,
    )
  }
  for (const value of ['1e308', '[{"x":[1.5]}]', '"\\ud83d\\ude00"', 'null']) {
    t.equal(parseLogin(Buffer.from(extra(value))).ok, true, value)
  }
})

t.test('a field that stands twice is refused in either order, and named', async (t) => {
  t.equal(
    messageFor('{"accountId":"a","accessKey":"k","secret":"hush","secret":"x"}'),
    'secret must not stand twice.',
  )
  t.equal(
    messageFor('{"accountId":"a","accessKey":"k","secret":"x","s\\u0065cret":"hush"}'),
    'secret must not stand twice.',
  )
  t.equal(messageFor({ ...good, more: 0 }), undefined)
  t.equal(
    messageFor('{"accountId":"a","accessKey":"k","secret":"s","more":{"hush":1,"hush":2}}'),
    'No member of the body may stand twice.',
  )
})

t.test('what is not a JSON object in UTF-8 is refused', async (t) => {
  const notJson = [
    '',
    ' ',
    '{',
    '{"accountId":"a",}',
    '{"accountId":"a"} x',
    '// hush\n{}',
    '{"a":NaN}',
    `\ufeff${JSON.stringify(good)}`,
    '['.repeat(16_000),
    'accountId=a&secret=hush',
  ]
  for (const text of notJson) t.equal(messageFor(text), 'The body must be JSON, in UTF-8.')
  t.match(parseLogin(Buffer.from(JSON.stringify(good), 'utf16le')), { ok: false, message: /must be JSON/ })
  t.match(parseLogin(Buffer.from('{"accountId":"\xff"}', 'latin1')), { ok: false, message: /must be JSON/ })
  for (const text of ['[]', 'null', '5', '"hush"', 'true']) {
    t.equal(messageFor(text), 'The body must be a JSON object.')
  }
})

t.test('a body is 16 KiB at most', async (t) => {
  const padded = (bytes: number) => JSON.stringify(good).padEnd(bytes)
  t.equal(messageFor(padded(MAX_LOGIN_BYTES)), undefined)
  t.equal(messageFor(padded(MAX_LOGIN_BYTES + 1)), 'The body is larger than 16 KiB.')
})

t.test('no message repeats what was sent', async (t) => {
  const bodies = [
    '{"hush":1,"hush":2}',
    '{"accountId":"hush\\n","accessKey":"hush\\u0000","secret":{"hush":1}}',
    'hush',
    '["hush"]',
  ]
  for (const text of bodies) t.notMatch(messageFor(text), /hush/)
})
