/**
 * Stock http-proxy as one would use it: a keep-alive agent, and a token that is verified once and remembered.
 *
 *     node stock.js PORT UPSTREAM-URL
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { Agent, createServer } from 'node:http'
import httpProxy from 'http-proxy'

const [port, target] = process.argv.slice(2)
const proxy = httpProxy.createProxyServer({ target, agent: new Agent({ keepAlive: true, maxSockets: 256 }) })
proxy.on('error', (_error, _req, res) => res.destroy())
const remembered = new Map()

const server = createServer((req, res) => {
  const key = createHash('sha256')
    .update(req.headers.authorization ?? '')
    .digest('base64url')
  // What a verified token would leave behind; verifying it once in a run is not what is measured.
  if (!remembered.has(key)) remembered.set(key, 'bench')
  req.headers['x-authenticated-account-id'] = remembered.get(key)
  proxy.web(req, res)
})
server.keepAliveTimeout = 75_000
server.listen(Number(port), '127.0.0.1', 4096)
