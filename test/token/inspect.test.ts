import t from 'tap'
import { TOKEN_ERRORS, type TokenFailure } from '../../src/base/errors.ts'
import { failed } from '../../src/base/result.ts'
import type { RevocableToken } from '../../src/token/caller.ts'
import { inspectToken } from '../../src/token/inspect.ts'
import type { Verdict } from '../../src/token/verify.ts'
import { makeKey } from '../support/keys.ts'
import { AUDIENCE, goodClaims, ISSUER, makeVerifiedToken, mintToken } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const key = await makeKey()
const claims = goodClaims({ now: NOW })
const token = await mintToken({ key, claims })

const RULES = {
  token: { issuer: ISSUER, audience: AUDIENCE, maxLifetimeSeconds: 86_400, clockToleranceSeconds: 5 },
  links: { enabled: false, maxLifetimeSeconds: 60 },
  trustedIssuers: [
    {
      issuer: 'https://idp.example',
      audience: 'storage',
      maxLifetimeSeconds: 3600,
      accessKeyClaim: 'email',
      requiredClaims: { group: 'ops' },
    },
  ],
}

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
  return inspectToken(token, { verify, own, isRevoked, rules: RULES, now: () => at })
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
  const deep = Buffer.from(`{"a":${'['.repeat(16_000)}${']'.repeat(16_000)}}`).toString('base64url')
  t.match(await inspect(`${deep}.${deep}.AA`, failed({ reason: 'malformed' })), { ...NOTHING })
  t.match(await inspect('', accepted), { ...NOTHING, reason: 'missing', explanation: 'There is no token.' })
})

t.test('a refused claim is explained with its value, the limit and the setting', async (t) => {
  const nowSeconds = NOW / 1000
  const idp = { iss: 'https://idp.example' }
  const cases: readonly (readonly [part: string, claims: object, explanation: string])[] = [
    [
      'iss',
      { iss: 'x' },
      `Its iss is "x". Accepted: "${ISSUER}" (token.issuer), "https://idp.example" (trustedIssuers[0].issuer).`,
    ],
    ['aud', { aud: ['a'] }, `Its aud is ["a"]. Needed: "${AUDIENCE}" (token.audience).`],
    ['aud', { ...idp, aud: 'a' }, 'Its aud is "a". Needed: "storage" (trustedIssuers[0].audience).'],
    [
      'exp',
      { iat: nowSeconds, exp: nowSeconds + 90_000 },
      'It lives 90000 s (exp - iat). Limit: 86400 s (token.maxLifetimeSeconds).',
    ],
    [
      'exp',
      { ...idp, iat: nowSeconds, exp: nowSeconds + 4000 },
      'It lives 4000 s (exp - iat). Limit: 3600 s (trustedIssuers[0].maxLifetimeSeconds).',
    ],
    ['exp', { exp: 'soon' }, 'Its exp is "soon". Needed: a number of seconds, later than iat.'],
    [
      'iat',
      { iat: nowSeconds + 60 },
      `Its iat is ${nowSeconds + 60}, 60 s ahead of the clock here. Limit: 5 s (token.clockToleranceSeconds).`,
    ],
    [
      'group',
      { ...idp, group: 'dev' },
      'Its group is "dev". Needed: "ops" (trustedIssuers[0].requiredClaims).',
    ],
    [
      'email',
      { ...idp, email: 'a@b' },
      'Its email is "a@b". It maps to no account (trustedIssuers[0].accounts or accountPrefix).',
    ],
    ['jti', { jti: 7 }, 'Its jti is 7. It is missing, or is no claim of an access token for this service.'],
  ]
  for (const [part, changed, expected] of cases) {
    const text = await mintToken({ key, claims: { ...claims, ...changed } })
    const { explanation } = await inspect(text, failed({ reason: 'claims', invalidPart: part }))
    t.equal(explanation, expected)
  }
  const foreign = await mintToken({ key, claims: { ...claims, iss: 'x' }, header: { kid: 'theirs' } })
  t.match(
    (await inspect(foreign, failed({ reason: 'unknown_key' }))).explanation,
    /^The sidecar has no key for the kid "theirs", so .* Its iss is "x"\. Accepted: .*token\.issuer/,
  )
})

t.test('a link is no bearer token, and has the credential of its maker', async (t) => {
  const parent = { parentId: 'p', parentIssuedAtSeconds: 1, parentIssuer: ISSUER }
  const link = { method: 'GET', target: '/a', host: undefined, ...parent }
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
