/**
 * The storage service of large objects: `node upstream.js PORT`. `GET /object?size=N` sends N bytes, `PUT
 * /stall` reads nothing, any other PUT counts what it receives, and any other GET is answered with 1 KiB.
 * A WebSocket echoes. Other requests are answered between any two blocks of all objects.
 */
import { createServer } from 'node:http'

const block = Buffer.alloc(1 << 20, 'x')
const small = block.subarray(0, 1024)

/** What sends the next block of each object. */
const senders = []

function sendLater(send) {
  if (senders.push(send) === 1) {
    setImmediate(sendNext)
  }
}

function sendNext() {
  const [send] = senders
  send()
  senders.shift()
  if (senders.length > 0) {
    setImmediate(sendNext)
  }
}

createServer({ highWaterMark: 1 << 20 }, (req, res) => {
  res.on('error', () => {})
  if (req.method === 'PUT') {
    if (req.url === '/stall') {
      return
    }
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
  const query = new URL(req.url, 'http://upstream').searchParams
  const size = query.get('size')
  const blockSize = Number(query.get('block') ?? block.length)
  let left = size === null ? small.length : Number(size)
  res.writeHead(200, { 'Content-Length': left, 'Content-Type': 'application/octet-stream' })
  const send = () => {
    if (res.destroyed) {
      return
    }
    const chunk = block.subarray(0, Math.min(left, blockSize))
    left -= chunk.length
    if (left === 0) {
      res.end(chunk)
    } else if (res.write(chunk)) {
      sendLater(send)
    } else {
      res.once('drain', () => sendLater(send))
    }
  }
  send()
})
  .on('upgrade', (_req, socket) => {
    socket.on('error', () => {})
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n',
    )
    socket.pipe(socket)
  })
  .listen(Number(process.argv[2]), '127.0.0.1', 4096)
