import { decodeJwt, decodeProtectedHeader } from 'jose'
import t from 'tap'
import type { KeyRing } from '../../src/keys/key-ring.ts'
import { TokenSigner } from '../../src/token/issue.ts'
import { claimsProblem } from '../../src/values/names.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { AUDIENCE, ISSUER } from '../support/tokens.ts'

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
    exp: issuedAt + 3600,
  })
  const times = { issuedAtSeconds: issuedAt, expiresAtSeconds: issuedAt + 3600 }
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
