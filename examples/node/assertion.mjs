/**
 * A storage service that verifies its caller, in Node with jose: it accepts the signed assertion and ignores the other identity headers.
 *
 *     PORT=9000 JWKS_URL=http://127.0.0.1:8081/.well-known/jwks.json node assertion.mjs
 */
import { createServer } from 'node:http'
import { createRemoteJWKSet, jwtVerify } from 'jose'

// Cached for ten minutes. An unknown kid, as after a key rotation, is fetched at once, but not more often than every 5 s.
const keys = createRemoteJWKSet(new URL(process.env.JWKS_URL), { cooldownDuration: 5000 })

/** The caller of a request; rejects when the assertion is missing or not for this service. */
async function callerOf(request) {
  const { payload } = await jwtVerify(request.headers['x-authenticated-assertion'] ?? '', keys, {
    algorithms: ['ES256'],
    typ: 'upstream-assertion+jwt',
    issuer: 'storage-account-api',
    audience: 'storage-upstream',
    requiredClaims: ['sub', 'client_id', 'jti', 'exp'],
  })
  return { account: payload.sub, accessKey: payload.client_id, tokenId: payload.jti, expiresAt: payload.exp }
}

const server = createServer(async (request, response) => {
  const caller = await callerOf(request).catch(() => undefined)
  const body = caller ?? { code: 'NotAuthenticated', message: 'This service wants a signed assertion.' }
  response.writeHead(caller === undefined ? 403 : 200, { 'Content-Type': 'application/json' })
  response.end(JSON.stringify(body))
})

server.listen(Number(process.env.PORT ?? 9000), '127.0.0.1', () => {
  console.log(JSON.stringify({ msg: 'listening', port: server.address().port }))
})
