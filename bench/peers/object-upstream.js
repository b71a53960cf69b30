/**
 * A storage service for large objects that is as quick as it can be: GET gives as many bytes as the query says, always
 * the same ones, and PUT counts what it gets and tells.
 *
 *     node object-upstream.js PORT
 *
 * @module
 */
import { createServer } from 'node:http'

const block = Buffer.alloc(1 << 20, 'x')

createServer({ highWaterMark: 1 << 20 }, (req, res) => {
  if (req.method === 'PUT') {
    let bytes = 0
    req.on('data', (chunk) => {
      bytes += chunk.length
    })
    req.on('end', () => {
      const text = String(bytes)
      res.writeHead(200, { 'Content-Length': text.length }).end(text)
    })
    return
  }
  let left = Number(new URL(req.url, 'http://upstream').searchParams.get('size'))
  res.writeHead(200, { 'Content-Length': left, 'Content-Type': 'application/octet-stream' })
  const send = () => {
    while (left > 0) {
      const chunk = left < block.length ? block.subarray(0, left) : block
      left -= chunk.length
      if (!res.write(chunk) && left > 0) return res.once('drain', send)
    }
    res.end()
  }
  send()
}).listen(Number(process.argv[2]), '127.0.0.1')
