import t from 'tap'
import { type ClaimRules, checkClaims } from '../../src/token/claims.ts'
import { AUDIENCE, goodClaims, ISSUER } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const seconds = NOW / 1000
const rules: ClaimRules = {
  issuer: ISSUER,
  audience: AUDIENCE,
  maxLifetimeSeconds: 86_400,
  clockToleranceSeconds: 0,
}
const good = goodClaims({ now: NOW })
const bytesOf = (text: string | Uint8Array) => Buffer.from(text)

/** `ok`, or the claim at fault, or `expired`. */
function check(
  claims: object | string | Uint8Array,
  { at = NOW, ...changed }: Partial<ClaimRules> & { at?: number } = {},
) {
  const text = typeof claims === 'string' || claims instanceof Uint8Array ? claims : JSON.stringify(claims)
  const verdict = checkClaims(bytesOf(text), { ...rules, ...changed }, at)
  if (verdict.ok) return 'ok'
  return verdict.reason === 'expired' ? 'expired' : (verdict.claim ?? 'payload')
}

/** A value as part of a test's name. */
const named = (value: unknown) => `${JSON.stringify(value)}`.replace(/[^ -~]/g, '?').slice(0, 20)

/** The good claims as text, with one value in a spelling of its own. */
function withText(claim: keyof typeof good, text: string) {
  return JSON.stringify({ ...good, [claim]: '@' }).replace('"@"', text)
}

t.test('good claims give the identity', async (t) => {
  t.same(checkClaims(bytesOf(JSON.stringify(good)), rules, NOW), {
    ok: true,
    identity: { accountId: 'acme', accessKey: 'AKTEST', tokenId: good.jti, expiresAt: good.exp },
    issuedAt: good.iat,
  })
})

t.test('claims that we do not know are ignored, whatever they hold', async (t) => {
  t.equal(
    check({ ...good, scope: 'x', auth_time: 1.5, __proto__: null, nested: { exp: 'never', iss: 1 } }),
    'ok',
  )
  t.equal(check(JSON.stringify({ ...good, p: 0 }).replace('"p"', '"__proto__"')), 'ok')
  t.equal(check(JSON.stringify(good).replaceAll(',', ' ,\n').replaceAll(':', ' : ')), 'ok', 'whitespace')
})

t.test('the payload is one strict JSON object', async (t) => {
  const text = JSON.stringify(good)
  for (const payload of [
    '',
    'null',
    '[]',
    '"a"',
    `${text}x`,
    `\uFEFF${text}`,
    `${text.slice(0, -1)},"sub":"other"}`,
    `${text.slice(0, -1)},"\\u0073ub":"other"}`,
    `${text.slice(0, -1)},"x":{"a":1,"a":2}}`,
    Buffer.concat([bytesOf(text.slice(0, -1)), bytesOf(',"x":"'), Uint8Array.of(0xff), bytesOf('"}')]),
  ]) {
    t.equal(check(payload), 'payload', String(payload).slice(-30))
  }
})

t.test('iss and aud must be ours', async (t) => {
  for (const iss of [undefined, null, '', `${ISSUER}/`, ISSUER.toUpperCase(), [ISSUER], { iss: ISSUER }, 1]) {
    t.equal(check({ ...good, iss }), 'iss', JSON.stringify(iss))
  }
  for (const aud of [
    undefined,
    null,
    '',
    'other',
    [],
    ['other'],
    [[AUDIENCE]],
    { 0: AUDIENCE },
    `${AUDIENCE} x`,
  ]) {
    t.equal(check({ ...good, aud }), 'aud', JSON.stringify(aud))
  }
  for (const aud of [AUDIENCE, [AUDIENCE], ['other', AUDIENCE], [1, AUDIENCE]])
    t.equal(check({ ...good, aud }), 'ok')
})

t.test('sub and client_id are 1 to 1024 code points without control characters', async (t) => {
  for (const claim of ['sub', 'client_id'] as const) {
    for (const value of [
      'a',
      ' ',
      '山田',
      '👩‍🚀',
      '\u2028',
      'a'.repeat(1024),
      '𝒜'.repeat(1024),
      '__proto__',
    ]) {
      t.equal(check({ ...good, [claim]: value }), 'ok', named(value))
    }
    const refused = [undefined, null, '', 0, true, {}, ['a'], 'a\r\nb', '\0', '\x1b', '\x7f', '\x85', '\x9f']
    for (const value of [
      ...refused,
      'a'.repeat(1025),
      '𝒜'.repeat(1025),
      'a'.repeat(65_536),
      '\ud800',
      'a\udc00',
    ]) {
      t.equal(check({ ...good, [claim]: value }), claim, named(value))
    }
  }
})

t.test('jti is a text of at most 256 without control characters', async (t) => {
  for (const jti of ['j', 'j'.repeat(256)]) t.equal(check({ ...good, jti }), 'ok')
  for (const jti of [undefined, null, '', 1, {}, ['j'], 'j'.repeat(257), 'a\nb']) {
    t.equal(check({ ...good, jti }), 'jti', named(jti))
  }
})

t.test('a plain time elsewhere in the token does not speak for one that is not plain', async (t) => {
  for (const claim of ['exp', 'iat'] as const) {
    const value = good[claim]
    const elsewhere = [
      `"x":{"${claim}":${value}}`,
      `"x":[{"${claim}":${value}},{"${claim}":1}]`,
      `"x":{"y":{"${claim}":${value}},"${claim}":1}`,
      `"x":${JSON.stringify(`\\","${claim}":${value},"`)}`,
      `"${claim} ":${value}`,
      `"x":"${claim}","y":${value}`,
      `"x\\\\":{"${claim}":${value}}`,
    ]
    for (const member of elsewhere) {
      for (const spelling of [`${value}.0`, `${value}e0`]) {
        const text = withText(claim, spelling)
        t.equal(check(`${text.slice(0, -1)},${member}}`), claim, `${member} behind ${spelling}`)
        t.equal(check(`{${member},${text.slice(1)}`), claim, `${member} before ${spelling}`)
      }
      t.equal(check(`{${member},${JSON.stringify(good).slice(1)}`), 'ok', `${member} is nothing to us`)
    }
    const escaped = JSON.stringify(good).replace(
      `"${claim}"`,
      `"\\u00${claim.charCodeAt(0).toString(16)}${claim.slice(1)}"`,
    )
    t.equal(check(escaped), claim, 'a name spelled with escapes is not plain either')
  }
})

t.test('exp and iat are whole numbers in plain form', async (t) => {
  for (const claim of ['exp', 'iat'] as const) {
    const value = good[claim]
    for (const text of [
      'null',
      'true',
      '{}',
      '[]',
      `"${value}"`,
      '1e400',
      '-1e400',
      '99999999999999999999',
      '-1',
      '-0',
      `${value}.5`,
      `${value}.0`,
      `${value / 10 ** 9}e9`,
      `${value}e0`,
      '9007199254740993',
    ]) {
      t.equal(check(withText(claim, text)), claim, `${claim}: ${text}`)
    }
    t.equal(check({ ...good, [claim]: undefined }), claim, `no ${claim}`)
    t.equal(check(withText(claim, ` ${value} `)), 'ok')
  }
})

t.test('a token lives from iat to exp, for some time and no longer than allowed', async (t) => {
  const { iat } = good
  t.equal(check({ ...good, exp: iat + 86_400 }), 'ok')
  t.equal(check({ ...good, exp: iat + 86_401 }), 'exp')
  t.equal(check({ ...good, exp: iat }), 'exp')
  t.equal(check({ ...good, exp: iat - 1 }), 'exp')
  t.equal(check({ ...good, exp: iat + 60 }, { maxLifetimeSeconds: 60 }), 'ok')
  t.equal(check({ ...good, exp: iat + 61 }, { maxLifetimeSeconds: 60 }), 'exp')
})

t.test('a token is expired from the very millisecond of exp on, plus the tolerance', async (t) => {
  const end = good.exp * 1000
  for (const clockToleranceSeconds of [0, 60]) {
    const edge = end + clockToleranceSeconds * 1000
    t.equal(check(good, { at: edge - 1, clockToleranceSeconds }), 'ok')
    t.equal(check(good, { at: edge, clockToleranceSeconds }), 'expired')
    t.equal(check(good, { at: edge + 10 ** 9, clockToleranceSeconds }), 'expired')
  }
})

t.test('a token begins at iat and nbf, less the tolerance', async (t) => {
  for (const clockToleranceSeconds of [0, 60]) {
    const begins = seconds + clockToleranceSeconds
    const options = { clockToleranceSeconds }
    t.equal(check({ ...good, iat: begins, exp: begins + 9 }, options), 'ok')
    t.equal(check({ ...good, iat: begins + 1, exp: begins + 9 }, options), 'iat')
    t.equal(check({ ...good, nbf: begins }, options), 'ok')
    t.equal(check({ ...good, nbf: begins - 0.5 }, options), 'ok', 'a fraction is a plain number, too')
    t.equal(check({ ...good, nbf: begins + 1 }, options), 'nbf')
  }
  for (const text of ['null', '"0"', 'true', '[]', '1e400']) {
    t.equal(check(`${JSON.stringify(good).slice(0, -1)},"nbf":${text}}`), 'nbf', text)
  }
})

t.test('a token with a fault beside its age is not called expired', async (t) => {
  const old = { ...good, iat: 1000, exp: 2000 }
  t.equal(check(old), 'expired')
  for (const [claim, value] of Object.entries({
    iss: 'x',
    aud: 'x',
    sub: '',
    client_id: '',
    jti: '',
    nbf: '0',
  })) {
    t.equal(check({ ...old, [claim]: value }), claim)
  }
  t.equal(check({ ...old, exp: 1000 + 86_401 }), 'exp', 'it lived too long')
})
