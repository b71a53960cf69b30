import { decodeJwt, decodeProtectedHeader } from 'jose'
import t from 'tap'
import { claimsProblem } from '../../src/base/values.ts'
import { type FindKey, findInRing, type KeyRing } from '../../src/keys/key-ring.ts'
import { TokenCache } from '../../src/token/cache.ts'
import { TokenSigner } from '../../src/token/issue.ts'
import { createIssuers } from '../../src/token/issuers.ts'
import { createVerifier, type Verdict } from '../../src/token/verify.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { AUDIENCE, ISSUER, mintToken } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12) + 999
const now = () => NOW
const issuedAt = Math.floor(NOW / 1000)
const subject = { accountId: 'acme', accessKey: 'AK1' }

const settings = { issuer: ISSUER, audience: AUDIENCE, lifetimeSeconds: 3600 }
const issuerFor = (keys: () => KeyRing) => {
  const signer = new TokenSigner(keys, settings, now)
  return (login: { accountId: string; accessKey: string }) => signer.issueToken(login)
}

t.test('a token contains the claims of RFC 9068 and no others', async (t) => {
  const { ring, kid } = await makeKeyDirectory(t)
  const { token, identity } = await issuerFor(() => ring)(subject)
  t.same(decodeProtectedHeader(token), { alg: 'ES256', kid, typ: 'at+jwt' })
  t.same(decodeJwt(token), {
    iss: ISSUER,
    aud: AUDIENCE,
    sub: 'acme',
    client_id: 'AK1',
    jti: identity.tokenId,
    iat: issuedAt,
    exp: issuedAt + 3601,
  })
  const times = { issuedAtSeconds: issuedAt, expiresAtSeconds: issuedAt + 3601 }
  t.same(identity, { ...subject, tokenId: identity.tokenId, ...times })
})

t.test('any valid pair of names fits into a token signed by a large key', async (t) => {
  const kid = 'k'.repeat(128)
  const { ring } = await makeKeyDirectory(t, { alg: 'RS256', kid })
  const issue = issuerFor(() => ring)
  for (const [accountId, accessKey] of [
    ['😀'.repeat(1024), 'a'.repeat(1024)],
    ['"'.repeat(1024), '\\'.repeat(1024)],
    ['密'.repeat(1024), '密'.repeat(682)],
  ] as const) {
    t.equal(claimsProblem(accountId, accessKey), undefined)
    const { token } = await issue({ accountId, accessKey })
    const signature4096 = Math.ceil((4096 / 8) * (4 / 3))
    t.ok(token.lastIndexOf('.') + 1 + signature4096 <= 8192)
  }
})

const START = Date.UTC(2026, 10, 20, 12) + 250
const ASSERTION_AUDIENCE = 'storage-upstream'

interface Options {
  readonly lifetimeSeconds?: number
  readonly tokenSeconds?: number
  readonly clockToleranceSeconds?: number
}

/** One token in front of a cache that signs assertions, with a clock and a key ring that the test sets. */
async function setUp(
  t: Parameters<typeof makeKeyDirectory>[0],
  { lifetimeSeconds = 300, tokenSeconds = 3600, clockToleranceSeconds = 0 }: Options = {},
) {
  const key = await makeKeyDirectory(t, { kid: 'one' })
  const state: { now: number; ring: KeyRing; revoked: boolean; failing: boolean } = {
    now: START,
    ring: key.ring,
    revoked: false,
    failing: false,
  }
  const shared = { keys: () => state.ring, issuer: ISSUER, now: () => state.now }
  const signer = new TokenSigner(
    shared.keys,
    { issuer: ISSUER, audience: AUDIENCE, lifetimeSeconds: 60 },
    shared.now,
  )
  let signatures = 0
  const findKey: FindKey = (kid, alg) => findInRing(state.ring, kid, alg)
  const rules = { issuer: ISSUER, audience: AUDIENCE, maxLifetimeSeconds: 86_400 }
  const issuerSettings = { token: rules, links: { ...rules, enabled: true }, trustedIssuers: [] }
  const verify = createVerifier({
    ...shared,
    issuers: createIssuers(issuerSettings, findKey, []),
    clockToleranceSeconds,
    isRevoked: () => state.revoked,
  })
  const cache = new TokenCache({
    verify,
    isRevoked: () => false,
    signAssertions: async (identity) => {
      signatures++
      if (state.failing) {
        throw new Error('no entropy')
      }
      return signer.signAssertions(identity, [ASSERTION_AUDIENCE, 'archive'], lifetimeSeconds)
    },
    maxTokens: 10,
    maxAgeSeconds: 86_400,
    now: shared.now,
  })
  const token = await mintToken({ key, now: START, lifetimeSeconds: tokenSeconds, claims: { jti: 'j' } })
  const resultOf = <T>(verdict: Verdict<T>) => (verdict.ok ? verdict.value : verdict.error.reason)
  const check = () => {
    const verdict = cache.check(token)
    return verdict instanceof Promise ? verdict.then(resultOf) : resultOf(verdict)
  }
  const assertionOf = (checked: Awaited<ReturnType<typeof check>>) =>
    typeof checked === 'string' ? undefined : checked.assertions?.get(ASSERTION_AUDIENCE)
  return {
    state,
    cache,
    verify,
    check,
    assertionOf,
    /** The assertion that a request gets now. */
    now: async () => assertionOf(await check()),
    /** The same, of a request that does not wait. */
    atOnce() {
      const verdict = check()
      if (verdict instanceof Promise) {
        throw new Error('the request waits')
      }
      return assertionOf(verdict)
    },
    signatures: () => signatures,
  }
}

const claims = (assertion: string | undefined) => decodeJwt(assertion ?? '')

t.test('an assertion is signed once, and a cached request gets it without a promise', async (t) => {
  const { state, now, atOnce, signatures } = await setUp(t)
  const assertion = await now()
  for (const later of [1, 60_000, 149_000]) {
    state.now = START + later
    t.equal(atOnce(), assertion)
  }
  t.equal(signatures(), 1)
})

t.test('an assertion is renewed at half of its lifetime, once for concurrent requests', async (t) => {
  const { state, check, assertionOf, now, atOnce, signatures } = await setUp(t)
  const first = await now()
  state.now = START + 150_000
  for (const verdict of await Promise.all([check(), check()])) {
    const assertion = assertionOf(verdict)
    t.ok(assertion !== undefined && assertion !== first && assertion === atOnce())
  }
  t.equal(claims(atOnce()).exp, Math.floor(state.now / 1000) + 300)
  t.equal(signatures(), 2)
})

t.test('an assertion expires no later than its token', async (t) => {
  const { state, now, check, signatures } = await setUp(t, { tokenSeconds: 60, clockToleranceSeconds: 30 })
  const end = Math.floor(START / 1000) + 60
  const first = await now()
  t.equal(claims(first).exp, end)
  state.now = end * 1000 - 1
  t.equal(await now(), first)
  t.equal(signatures(), 1, 'no other could be good for longer')
  state.now = end * 1000
  t.equal(await check(), 'expired', 'the clock tolerance does not stretch the end of a token')
})

t.test('a request that waits for a renewal is refused if its token is revoked', async (t) => {
  const { state, check, now } = await setUp(t)
  await now()
  state.now = START + 150_000
  const pending = check()
  state.revoked = true
  t.equal(await pending, 'revoked')
})

t.test('a renewal that fails is tried again by the next request', async (t) => {
  const { state, check, now } = await setUp(t)
  const first = await now()
  state.failing = true
  state.now = START + 150_000
  await t.rejects(Promise.resolve(check()), { message: 'no entropy' })
  state.failing = false
  t.not(await now(), first)
})
