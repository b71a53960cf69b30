/**
 * A storage service that verifies its caller, in Node with jose: it accepts the signed assertion and ignores the other identity headers.
 *
 *     PORT=9000 JWKS_URL=http://127.0.0.1:8081/.well-known/jwks.json node assertion.mjs
 */
import { createServer } from 'node:http'
import { createRemoteJWKSet, jwtVerify } from 'jose'

// Cached for ten minutes. An unknown kid, as after a key rotation, is fetched at once, but not more often than every 5 s.
const jwks = createRemoteJWKSet(new URL(process.env.JWKS_URL), { cooldownDuration: 5000 })

class KeysUnavailable extends Error {}

/** The key of an assertion. Only an unknown kid is the caller's fault. */
async function keys(header, token) {
  return jwks(header, token).catch((cause) => {
    if (cause.code === 'ERR_JWKS_NO_MATCHING_KEY') {
      throw cause
    }
    throw new KeysUnavailable('cannot fetch the keys', { cause })
  })
}

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

function refusal(error) {
  if (!(error instanceof KeysUnavailable)) {
    return [403, { code: 'NotAuthenticated', message: 'This service wants a signed assertion.' }]
  }
  console.error(error)
  return [503, { code: 'ServiceNotReady', message: 'The caller cannot be verified now. Retry later.' }]
}

const server = createServer(async (request, response) => {
  const [status, body] = await callerOf(request).then((caller) => [200, caller], refusal)
  response.writeHead(status, { 'Content-Type': 'application/json' })
  response.end(JSON.stringify(body))
})

server.listen(Number(process.env.PORT ?? 9000), '127.0.0.1', () => {
  console.log(JSON.stringify({ msg: 'listening', port: server.address().port }))
})
