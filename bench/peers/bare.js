/**
 * Node's HTTP server without any proxying: what cannot be gone below in this language.
 *
 *     node bare.js PORT
 *
 * @module
 */
import { createServer } from 'node:http'

const body = Buffer.alloc(1024, 'x')
const headers = ['Content-Type', 'text/plain', 'Content-Length', '1024']

createServer((_req, res) => {
  res.writeHead(200, headers)
  res.end(body)
}).listen(Number(process.argv[2]), '127.0.0.1')
