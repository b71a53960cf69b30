import t from 'tap'
import { isAccessTokenType, parseProtectedHeader } from '../../src/token/protected-header.ts'
import { segment } from '../support/tokens.ts'

const parse = (header: object) => parseProtectedHeader(segment(JSON.stringify(header)))
const good = { alg: 'ES256', kid: 'k', typ: 'at+jwt' }

t.test('reads what we act on, and follows nothing else', async (t) => {
  t.same(parse(good), good)
  t.same(parse({ ...good, jwk: {}, jku: 'http://x', x5u: 'http://x', x5c: ['AA'], __proto__: 1 }), good)
  t.same(parse({ alg: 'none' }), { alg: 'none', kid: undefined, typ: undefined })
})

t.test('refuses parameters that would change what the token means, whatever their value', async (t) => {
  for (const name of ['crit', 'b64', 'zip', 'cty']) {
    for (const value of [null, false, true, [], ['exp'], 'JWT', 'DEF', 0]) {
      t.equal(parse({ ...good, [name]: value }), undefined, `${name} ${JSON.stringify(value)}`)
    }
  }
})

t.test('refuses an alg or a kid that is no text', async (t) => {
  for (const value of [null, 1, true, ['ES256'], { a: 1 }]) {
    t.equal(parse({ ...good, alg: value }), undefined)
    t.equal(parse({ ...good, kid: value }), undefined)
  }
  t.equal(parse({ kid: 'k' }), undefined, 'no alg at all')
})

t.test('refuses what is no strict JSON object', async (t) => {
  const text = JSON.stringify(good)
  for (const header of [
    '[]',
    'null',
    '"ES256"',
    '{',
    `${text}{}`,
    `\uFEFF${text}`,
    '{"alg":"ES256","alg":"none"}',
    '{"alg":"ES256","\\u0061lg":"none"}',
    '['.repeat(6000),
    `{"a":${'['.repeat(2900)}${']'.repeat(2900)},"a":1}`,
  ]) {
    t.equal(parseProtectedHeader(segment(header)), undefined, header.slice(0, 40))
  }
  t.equal(parseProtectedHeader(segment(Uint8Array.of(0x7b, 0xff, 0x7d))), undefined, 'invalid UTF-8')
})

t.test('the type of an access token is a media type', async (t) => {
  for (const typ of ['at+jwt', 'AT+JWT', 'at+JWT', 'application/at+jwt', 'Application/AT+jwt']) {
    t.equal(isAccessTokenType(typ), true, typ)
  }
  for (const typ of [
    undefined,
    null,
    '',
    'JWT',
    'jwt',
    'at',
    'at+jwt ',
    'text/at+jwt',
    'id+jwt',
    ['at+jwt'],
  ]) {
    t.equal(isAccessTokenType(typ), false, String(typ))
  }
})
