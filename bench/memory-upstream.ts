/**
 * A storage service for the memory run: GET gives as many bytes of a fixed pattern as the query says, PUT answers with
 * the SHA-256 of what it was sent, and PUT /stall reads nothing.
 *
 *     node memory-upstream.ts PORT
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import { patternOf } from './pattern.ts'

createServer((req, res) => {
  const { pathname, searchParams } = new URL(req.url ?? '/', 'http://upstream')
  req.on('error', () => {})
  res.on('error', () => {})
  if (req.method === 'PUT') {
    if (pathname === '/stall') return
    const hash = createHash('sha256')
    req.on('data', (chunk: Buffer) => hash.update(chunk)).on('end', () => res.end(hash.digest('hex')))
    return
  }
  const size = Number(searchParams.get('size'))
  res.writeHead(200, { 'Content-Length': size })
  patternOf(size).pipe(res)
}).listen(Number(process.argv[2]), '127.0.0.1')
