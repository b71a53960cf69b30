/**
 * Node's HTTP server without any proxying: what cannot be gone below in this language. Also the upstream where nginx
 * is not installed.
 *
 *     node bare.js PORT
 *
 * @module
 */
import { createServer } from 'node:http'

const body = Buffer.alloc(1024, 'x')
const headers = ['Content-Type', 'text/plain', 'Content-Length', '1024']

const server = createServer((_req, res) => {
  res.writeHead(200, headers)
  res.end(body)
})
server.keepAliveTimeout = 75_000
server.listen(Number(process.argv[2]), '127.0.0.1', 4096)
