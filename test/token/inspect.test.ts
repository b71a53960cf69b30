import t from 'tap'
import { inspectToken } from '../../src/token/inspect.ts'
import type { RejectReason } from '../../src/token/verdict.ts'
import type { Verified } from '../../src/token/verify.ts'
import { makeKey } from '../support/keys.ts'
import { goodClaims, mintToken, segment } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const key = await makeKey()
const claims = goodClaims({ now: NOW })

function inspect(token: string, verified: Verified, { at = NOW, inForce = true } = {}) {
  const standing = () => (inForce ? ({ inForce, until: 1 } as const) : ({ inForce } as const))
  return inspectToken(token, { verify: async () => verified, standing, now: () => at })
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

t.test('tells the time left in whole seconds, none when it has run out', async (t) => {
  const token = await mintToken({ key, claims })
  const leftAt = async (at: number) => (await inspect(token, accepted, { at })).timeLeftSeconds
  t.equal(await leftAt(claims.exp * 1000 - 1), 1)
  t.equal(await leftAt(claims.exp * 1000), 0)
  t.equal(await leftAt(claims.exp * 1000 + 5000), 0)
})

t.test('tells when the credential is not in force', async (t) => {
  const token = await mintToken({ key, claims })
  t.equal((await inspect(token, accepted, { inForce: false })).credentialInForce, false)
})

t.test('has nothing to tell of what cannot be read', async (t) => {
  const refused: Verified = { ok: false, reason: 'malformed' }
  const nothing = {
    kid: null,
    alg: null,
    timeLeftSeconds: null,
    credentialInForce: null,
    header: null,
    claims: null,
  }
  const deep = `{"a":${'['.repeat(100)}${']'.repeat(100)}}`
  for (const token of [
    '',
    'hello',
    `${segment('{"alg":"ES256"}')}.${segment('{}')}`,
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
