/**
 * A storage service behind the sidecar, in Node, without packages: says who the caller is.
 *
 *     PORT=9000 node server.mjs
 *
 * It believes the identity headers because nothing but the sidecar can reach it: it listens on loopback.
 */
import { createServer } from 'node:http'

/** The caller of a request, or undefined where the request did not come through the sidecar with a token. */
function callerOf(request) {
  const one = (name) => {
    const values = request.headersDistinct[name] ?? []
    return values.length === 1 ? values[0] : undefined
  }
  const account = one('x-authenticated-account-id')
  const accessKey = one('x-authenticated-access-key')
  const tokenId = one('x-authenticated-token-id')
  const expires = one('x-authenticated-token-expires')
  if (account === undefined || accessKey === undefined || tokenId === undefined || expires === undefined) {
    return undefined
  }
  // Percent-encoded UTF-8. Not `unescape`, not a form decoder: a `+` is a plus.
  return {
    account: decodeURIComponent(account),
    accessKey: decodeURIComponent(accessKey),
    tokenId: decodeURIComponent(tokenId),
    expiresAt: Number(expires),
  }
}

const server = createServer((request, response) => {
  const caller = callerOf(request)
  const requestId = request.headers['x-request-id']
  const status = caller === undefined ? 403 : 200
  const body = caller ?? { code: 'NotAuthenticated', message: 'This service is reached through the sidecar.' }
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
  // The same id is in the sidecar's log and in the client's response. JSON keeps any name on one line.
  console.log(JSON.stringify({ msg: 'request', requestId, status, caller }))
})

server.listen(Number(process.env.PORT ?? 9000), '127.0.0.1', () => {
  console.log(JSON.stringify({ msg: 'listening', port: server.address().port }))
})
process.once('SIGTERM', () => server.close())
