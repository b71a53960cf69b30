import t from 'tap'
import { inspectToken } from '../../src/token/inspect.ts'
import type { IsRevoked } from '../../src/token/revocations.ts'
import type { RejectReason } from '../../src/token/verdict.ts'
import type { Verified } from '../../src/token/verify.ts'
import { makeKey } from '../support/keys.ts'
import { goodClaims, mintToken, segment } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const key = await makeKey()
const claims = goodClaims({ now: NOW })

function inspect(
  token: string,
  verified: Verified,
  {
    at = NOW,
    inForce = true,
    kept = true,
    isRevoked = () => false,
  }: { at?: number; inForce?: boolean; kept?: boolean; isRevoked?: IsRevoked } = {},
) {
  const standing = () => (inForce ? ({ inForce, until: 1 } as const) : ({ inForce } as const))
  const verify = async () => verified
  return inspectToken(token, { verify, ...(kept && { standing }), isRevoked, now: () => at })
}

const accepted: Verified = {
  ok: true,
  identity: { accountId: 'acme', accessKey: 'AKTEST', tokenId: claims.jti, expiresAt: claims.exp },
  usableUntil: 1,
}

t.test('tells all of a good token but its signature', async (t) => {
  const token = await mintToken({ key, claims })
  const inspection = await inspect(token, accepted)
  t.same(inspection, {
    verdict: 'valid',
    reason: null,
    explanation: 'It is accepted.',
    kid: key.kid,
    alg: 'ES256',
    timeLeftSeconds: 3600,
    revoked: false,
    credentialInForce: true,
    header: { alg: 'ES256', kid: key.kid, typ: 'at+jwt' },
    claims,
  })
  t.notOk(JSON.stringify(inspection).includes(token.slice(-20)))
})

t.test('explains every reason, and names the claim at fault', async (t) => {
  const token = await mintToken({ key, claims })
  const seen = new Set<string>()
  const reasons: RejectReason[] = [
    'missing',
    'malformed',
    'unknown_key',
    'algorithm',
    'signature',
    'expired',
    'revoked',
  ]
  for (const reason of reasons) {
    const { explanation, verdict } = await inspect(token, { ok: false, reason })
    t.equal(verdict, 'refused')
    t.match(explanation, /^[A-Z].{10,}\.$/, reason)
    seen.add(explanation)
  }
  t.equal(seen.size, reasons.length)
  t.match((await inspect(token, { ok: false, reason: 'claims', claim: 'aud' })).explanation, /^Its aud is/)
  t.match((await inspect(token, { ok: false, reason: 'claims' })).explanation, /^Its payload is/)
})

t.test('no token at all is missing, and no verifier is asked', async (t) => {
  const verify = () => Promise.reject(new Error('asked'))
  const inspection = await inspectToken('', { verify, isRevoked: () => false, now: () => NOW })
  t.match(inspection, {
    verdict: 'refused',
    reason: 'missing',
    explanation: 'There is no token.',
    claims: null,
  })
})

t.test('of what is no token it shows what can be read, and says which rule is broken', async (t) => {
  const token = await mintToken({ key, claims })
  const malformed: Verified = { ok: false, reason: 'malformed' }
  for (const [text, explanation] of [
    [`${token}.more`, /^It has 4 parts/],
    [`Bearer ${token}`, /^It begins with the scheme/],
    [`${token}${'A'.repeat(8192)}`, /^It has \d+ characters/],
    [`${token}=`, /^Its signature has =/],
  ] as const) {
    t.match(await inspect(text, malformed), {
      reason: 'malformed',
      kid: key.kid,
      claims: { sub: 'acme' },
      timeLeftSeconds: 3600,
      explanation,
    })
  }
  const nothing = { kid: null, alg: null, header: null, claims: null, timeLeftSeconds: null, revoked: null }
  for (const text of ['Bearer x', 'hello', '.', `${'A'.repeat(70_000)}.${'A'.repeat(70_000)}`]) {
    t.match(await inspect(text, malformed), nothing)
  }
})

t.test('tells the time left in whole seconds, none when it has run out', async (t) => {
  const token = await mintToken({ key, claims })
  const leftAt = async (at: number) => (await inspect(token, accepted, { at })).timeLeftSeconds
  t.equal(await leftAt(claims.exp * 1000 - 1), 1)
  t.equal(await leftAt(claims.exp * 1000), 0)
  t.equal(await leftAt(claims.exp * 1000 + 5000), 0)
})

t.test('tells whether it is revoked, by an entry or with its credential', async (t) => {
  const token = await mintToken({ key, claims })
  const refused: Verified = { ok: false, reason: 'revoked' }
  const asked: unknown[] = []
  const isRevoked: IsRevoked = (about) => {
    asked.push(about)
    return true
  }
  const byEntry = await inspect(token, refused, { isRevoked })
  t.match(byEntry, { revoked: true, credentialInForce: true, explanation: /been revoked/ })
  t.same(asked, [{ tokenId: claims.jti, accountId: 'acme', accessKey: 'AKTEST', issuedAt: claims.iat }])
  const byCredential = await inspect(token, refused, { inForce: false })
  t.match(byCredential, {
    revoked: true,
    credentialInForce: false,
    explanation: /disabled, removed or expired/,
  })
})

t.test('where credentials are kept elsewhere it tells nothing of them', async (t) => {
  const token = await mintToken({ key, claims })
  t.match(await inspect(token, accepted, { kept: false }), { revoked: false, credentialInForce: null })
  const revoked = await inspect(
    token,
    { ok: false, reason: 'revoked' },
    { kept: false, isRevoked: () => true },
  )
  t.match(revoked, { revoked: true, credentialInForce: null, explanation: /been revoked/ })
})

t.test('what does not say whom it is for, or when it was issued, is neither revoked nor not', async (t) => {
  const refused: Verified = { ok: false, reason: 'claims' }
  for (const missing of ['sub', 'client_id', 'jti', 'iat']) {
    const token = await mintToken({ key, claims: { ...claims, [missing]: undefined } })
    t.equal((await inspect(token, refused, { isRevoked: () => true })).revoked, null, missing)
  }
})

t.test('has nothing to tell of what cannot be read', async (t) => {
  const refused: Verified = { ok: false, reason: 'malformed' }
  const nothing = {
    kid: null,
    alg: null,
    timeLeftSeconds: null,
    revoked: null,
    credentialInForce: null,
    header: null,
    claims: null,
  }
  const deep = `{"a":${'['.repeat(100)}${']'.repeat(100)}}`
  for (const token of [
    '',
    'hello',
    [segment('no'), segment('[1]'), 'AA'].join('.'),
    [segment(deep), segment(deep), 'AA'].join('.'),
    [segment('{"a":1,"a":2}'), segment('\uFEFF{}'), 'AA'].join('.'),
  ]) {
    t.match(await inspect(token, refused), nothing, token.slice(0, 20))
  }
  const odd = [segment('{"alg":1,"kid":["k"]}'), segment('{"exp":"x","sub":1,"client_id":"a"}'), 'AA'].join(
    '.',
  )
  t.match(await inspect(odd, refused), { ...nothing, header: { alg: 1 }, claims: { exp: 'x' } })
})
