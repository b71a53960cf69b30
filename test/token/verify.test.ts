import t from 'tap'
import { failed } from '../../src/base/result.ts'
import { ALGORITHMS, type FindKey, type FoundKey, findInRing, type KeyRing } from '../../src/keys/key-ring.ts'
import { createIssuers, type TokenIssuer } from '../../src/token/issuers.ts'
import type { Verdict, VerifierOptions } from '../../src/token/verify.ts'
import { createVerifier } from '../../src/token/verify.ts'
import { makeKey, makeKeyDirectory, ringOf, writeKey } from '../support/keys.ts'
import type { MintOptions } from '../support/tokens.ts'
import { AUDIENCE, goodClaims, ISSUER, makeVerifiedToken, mintToken } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const exp = NOW / 1000 + 3600

const key = await makeKey('ES256', 'k')

const rules = { issuer: ISSUER, audience: AUDIENCE, maxLifetimeSeconds: 86_400 }
type Options = Partial<VerifierOptions & TokenIssuer>
const verifierFor = (ring: KeyRing, options: Options = {}) => {
  const { findKey = (kid, alg) => findInRing(ring, kid, alg) } = options
  const settings = { token: rules, links: { ...rules, enabled: false }, trustedIssuers: [] }
  return createVerifier({
    issuers: createIssuers(settings, findKey, []),
    isRevoked: () => false,
    clockToleranceSeconds: 0,
    now: () => NOW,
    ...options,
  })
}
const mint = (options: Partial<MintOptions> = {}) => mintToken({ key, now: NOW, ...options })
const reasonOf = (verdict: Verdict) => (verdict.ok ? 'ok' : verdict.error.reason)

let ring: KeyRing
t.before(async () => {
  const directory = t.testdir({ active: 'k' })
  writeKey(directory, key.privateJwk)
  ring = await ringOf(directory)
})

t.test('a token of each algorithm is verified with the private and the public key', async (t) => {
  for (const alg of ALGORITHMS) {
    const made = await makeKeyDirectory(t, { alg })
    const directory = t.testdir({})
    writeKey(directory, made.publicJwk)
    for (const ring of [made.ring, await ringOf(directory)]) {
      const verified = await verifierFor(ring)(await mint({ key: made, claims: { jti: 'j' } }))
      const times = { issuedAtSeconds: NOW / 1000, expiresAtSeconds: exp }
      const expected = makeVerifiedToken({ accessKey: 'AKTEST', tokenId: 'j', ...times }, exp * 1000)
      t.same(verified, { ok: true, value: { ...expected, issuer: ISSUER } })
    }
  }
})

/** `ok`, `expired`, or the claim at fault of a token with these changes of its claims. */
async function faultOf(changes: object | string, options: Options = {}) {
  const token = await mint(typeof changes === 'string' ? { claimsText: changes } : { claims: { ...changes } })
  const verified = await verifierFor(ring, options)(token)
  if (verified.ok) {
    return 'ok'
  }
  const { reason, invalidPart } = verified.error
  return reason === 'claims' ? invalidPart : reason
}

const good = goodClaims({ now: NOW })
const { iat } = good
const label = (value: unknown) => `${JSON.stringify(value)}`.replace(/[^ -~]/g, '?').slice(0, 20)
/** The good claims as text, with one value in another spelling. */
const spelled = (claim: string, text: string) =>
  JSON.stringify({ ...good, [claim]: '@' }).replace('"@"', text)

t.test('each claim must have its form', async (t) => {
  const long = ['a'.repeat(1025), '\u{1d49c}'.repeat(1025)]
  const names = [undefined, null, '', 0, true, {}, ['a'], '\ud800', ...long]
  const controls = ['a\r\nb', '\0', '\x1b', '\x7f', '\x85']
  const issuers = [undefined, null, '', `${ISSUER}/`, ISSUER.toUpperCase(), [ISSUER], { iss: ISSUER }, 1]
  const audiences = [undefined, null, '', 'other', [], ['other'], [[AUDIENCE]], { 0: AUDIENCE }]
  const times = [undefined, null, true, {}, [], `${iat}`, 0.5]
  const refused: Record<string, readonly unknown[]> = {
    iss: issuers,
    aud: audiences,
    sub: [...names, ...controls],
    client_id: [...names, ...controls],
    jti: [undefined, null, '', 1, {}, ['j'], 'j'.repeat(257), 'a\nb'],
    exp: [...times, -1, iat, iat - 1, iat + 86_402],
    iat: [...times, iat + 1],
    nbf: [null, '0', true, [], iat + 1],
  }
  for (const [claim, values] of Object.entries(refused)) {
    for (const value of values) {
      t.equal(await faultOf({ [claim]: value }), claim, `${claim} ${label(value)}`)
    }
  }
  const accepted: Record<string, readonly unknown[]> = {
    aud: [AUDIENCE, [AUDIENCE], ['other', AUDIENCE], [1, AUDIENCE]],
    sub: ['a', ' ', '山田', '\u2028', 'a'.repeat(1024), '\u{1d49c}'.repeat(1024), '__proto__'],
    client_id: ['a', '山田', 'a'.repeat(1024)],
    jti: ['j', 'j'.repeat(256)],
    exp: [iat + 1, iat + 86_400, iat + 86_401],
    nbf: [iat, iat - 0.5],
  }
  for (const [claim, values] of Object.entries(accepted)) {
    for (const value of values) {
      t.equal(await faultOf({ [claim]: value }), 'ok', `${claim} ${label(value)}`)
    }
  }
})

t.test('both names together have at most 5,120 bytes', async (t) => {
  const sub = '\u{1d49c}'.repeat(1024)
  t.equal(await faultOf({ sub, client_id: 'a'.repeat(1024) }), 'ok')
  t.equal(await faultOf({ sub, client_id: `${'a'.repeat(1023)}я` }), 'client_id')
})

t.test('a time beyond the safe integers is refused', async (t) => {
  for (const text of ['1e400', '-1e400', '99999999999999999999', '9007199254740993', `${iat}.5`]) {
    t.equal(await faultOf(spelled('exp', text)), 'exp', text)
    t.equal(await faultOf(spelled('iat', text)), 'iat', text)
  }
  t.equal(await faultOf(spelled('nbf', '1e400')), 'nbf')
})

t.test('iat and nbf may be in the future by the tolerance', async (t) => {
  for (const clockToleranceSeconds of [0, 60]) {
    const begins = iat + clockToleranceSeconds
    const options = { clockToleranceSeconds }
    t.equal(await faultOf({ iat: begins, exp: begins + 9 }, options), 'ok')
    t.equal(await faultOf({ iat: begins + 1, exp: begins + 9 }, options), 'iat')
    t.equal(await faultOf({ nbf: begins }, options), 'ok')
    t.equal(await faultOf({ nbf: begins + 1 }, options), 'nbf')
    t.equal(await faultOf({ iat: iat - 9, exp: iat }, options), 'expired', 'the end is not stretched')
  }
})

t.test('the tolerance counts from the fraction of the second at which the token is checked', async (t) => {
  const options = { clockToleranceSeconds: 5, now: () => NOW + 900 }
  t.equal(await faultOf({ nbf: iat + 5.9 }, options), 'ok')
  t.equal(await faultOf({ nbf: iat + 5.95 }, options), 'nbf')
})

t.test('a burst of new tokens occupies no more than the threads that check signatures', async (t) => {
  const verify = crypto.subtle.verify.bind(crypto.subtle)
  let running = 0
  let most = 0
  t.intercept(crypto.subtle, 'verify', {
    async value(...args: Parameters<typeof verify>) {
      running++
      most = Math.max(most, running)
      const isValid = await verify(...args)
      running--
      return isValid
    },
  })
  const tokens = await Promise.all(Array.from({ length: 50 }, () => mint()))
  const verdicts = await Promise.all(tokens.map(verifierFor(ring)))
  t.ok(verdicts.every(({ ok }) => ok))
  t.equal(most, 4)
})

t.test('an expired token with another defect is not reported as expired', async (t) => {
  const old = { iat: 1000, exp: 2000 }
  t.equal(await faultOf(old), 'expired')
  for (const claim of ['iss', 'aud', 'sub', 'client_id', 'jti', 'nbf']) {
    t.equal(await faultOf({ ...old, [claim]: '' }), claim)
  }
  t.equal(await faultOf({ ...old, exp: 1000 + 86_402 }), 'exp')
})

t.test('the issuer is asked for the key that the header names', async (t) => {
  const asked: unknown[] = []
  const reasonWith = async (found: FoundKey, header = {}) => {
    const findKey: FindKey = async (...names) => {
      asked.push(names)
      return found
    }
    return reasonOf(await verifierFor(ring, { findKey })(await mint({ header })))
  }
  for (const reason of ['unknown_key', 'algorithm', 'unavailable'] as const) {
    t.equal(await reasonWith(failed(reason)), reason)
  }
  t.equal(await reasonWith(failed('algorithm'), { kid: undefined }), 'unknown_key', 'own tokens have a kid')
  t.same(asked, Array(3).fill(['k', 'ES256']))
  for (const kid of [
    '',
    '.hidden',
    '../../dev/null',
    '/proc/sys/kernel/randomize_va_space',
    "k' OR '1'='1",
    '|sleep 10',
    'é',
    'x'.repeat(129),
    'a\n',
  ]) {
    const verdict = await verifierFor(ring)(await mint({ header: { kid } }))
    t.equal(reasonOf(verdict), 'unknown_key', JSON.stringify(kid))
  }
})
