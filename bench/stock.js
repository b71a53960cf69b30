/**
 * Stock http-proxy as its documentation shows it, with a keep-alive agent:
 * `node stock.js PORT UPSTREAM-PORT`.
 */
import { Agent, createServer } from 'node:http'
import httpProxy from 'http-proxy'

const [port, upstreamPort] = process.argv.slice(2)
const agent = new Agent({ keepAlive: true, maxSockets: 256 })
const proxy = httpProxy.createProxyServer({ target: `http://127.0.0.1:${upstreamPort}`, agent })
proxy.on('error', (_error, _req, res) => res.destroy())
const server = createServer((req, res) => proxy.web(req, res))
server.keepAliveTimeout = 75_000
server.listen(Number(port), '127.0.0.1', 4096)
