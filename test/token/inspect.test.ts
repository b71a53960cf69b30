import t from 'tap'
import { TOKEN_ERRORS, type TokenFailure } from '../../src/base/errors.ts'
import { failed } from '../../src/base/result.ts'
import type { RevocableToken } from '../../src/token/caller.ts'
import { inspectToken } from '../../src/token/inspect.ts'
import type { Verdict } from '../../src/token/verify.ts'
import { makeKey } from '../support/keys.ts'
import { goodClaims, ISSUER, makeVerifiedToken, mintToken } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const key = await makeKey()
const claims = goodClaims({ now: NOW })
const token = await mintToken({ key, claims })

interface Options {
  readonly at?: number
  readonly active?: boolean
  readonly kept?: boolean
  readonly isRevoked?: (token: RevocableToken) => boolean
}

function inspect(token: string, verdict: Verdict, options: Options = {}) {
  const { at = NOW, active = true, kept = true, isRevoked = () => false } = options
  const credentialStatus = () =>
    active ? ({ active: true, endsAtMs: 1 } as const) : ({ active: false } as const)
  const own = { name: ISSUER, ...(kept && { credentialStatus }) }
  const verify = async () => verdict
  return inspectToken(token, verify, own, isRevoked, () => at)
}

const caller = makeVerifiedToken({ accessKey: 'AKTEST', tokenId: claims.jti })
const accepted: Verdict = { ok: true, value: caller }
const NOTHING = {
  account: null,
  accessKey: null,
  kid: null,
  alg: null,
  timeLeftSeconds: null,
  revoked: null,
  credentialActive: null,
  header: null,
  claims: null,
}

t.test('explains every reject reason and names the invalid claim', async (t) => {
  const reasons = (Object.keys(TOKEN_ERRORS) as TokenFailure[]).filter((reason) => reason !== 'claims')
  const seen = new Set<string>()
  for (const reason of reasons) {
    const { explanation, verdict } = await inspect(token, failed({ reason }))
    t.equal(verdict, 'refused')
    t.match(explanation, /^[A-Z].{10,}\.$/, reason)
    seen.add(explanation)
  }
  t.equal(seen.size, reasons.length)
  t.match((await inspect(token, failed({ reason: 'claims', invalidPart: 'aud' }))).explanation, /^The aud is/)
  const deep = Buffer.from(`{"a":${'['.repeat(16_000)}${']'.repeat(16_000)}}`).toString('base64url')
  t.match(await inspect(`${deep}.${deep}.AA`, failed({ reason: 'malformed' })), { ...NOTHING })
  t.match(await inspect('', accepted), { ...NOTHING, reason: 'missing', explanation: 'There is no token.' })
})

t.test('a link is no bearer token, and has the credential of its maker', async (t) => {
  const parent = { parentId: 'p', parentIssuedAtSeconds: 1, parentIssuer: ISSUER }
  const link = { method: 'GET', target: '/a', ...parent }
  const made = await mintToken({ key, claims: { ...claims, parent_iss: 'https://idp.example' } })
  const { explanation, credentialActive } = await inspect(made, { ok: true, value: { ...caller, link } })
  t.match(explanation, /^It is a link: .* GET .* refused as a bearer token\.$/)
  t.equal(credentialActive, null)
})

t.test('shows whether it is revoked, by an entry or by its credential', async (t) => {
  const refused = failed({ reason: 'revoked' })
  const asked: unknown[] = []
  const isRevoked = (about: RevocableToken) => asked.push(about) > 0
  const byEntry = { revoked: true, credentialActive: true, explanation: /been revoked/ }
  t.match(await inspect(token, refused, { isRevoked }), byEntry)
  t.same(asked, [
    { tokenId: claims.jti, accountId: 'acme', accessKey: 'AKTEST', issuedAtSeconds: claims.iat },
  ])
  const byCredential = { revoked: true, credentialActive: false, explanation: /disabled, removed or expired/ }
  t.match(await inspect(token, refused, { active: false }), byCredential)
  t.match(await inspect(token, refused, { kept: false, isRevoked }), { ...byEntry, credentialActive: null })
  for (const missing of ['sub', 'client_id', 'jti', 'iat']) {
    const partial = await mintToken({ key, claims: { ...claims, [missing]: undefined } })
    const unknown = failed({ reason: 'claims' })
    t.equal((await inspect(partial, unknown, { isRevoked })).revoked, null, missing)
  }
  const foreign = await mintToken({ key, claims: { ...claims, iss: 'https://idp.example' } })
  t.match(await inspect(foreign, accepted, { active: false }), {
    revoked: false,
    credentialActive: null,
    account: 'acme',
    accessKey: 'AKTEST',
  })
  t.match(await inspect(foreign, refused, { active: false }), { revoked: true, credentialActive: null })
})
