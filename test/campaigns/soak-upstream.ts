/**
 * The upstream of the soak run: a process of its own, to be killed, paused and told to misbehave.
 *
 *     node soak-upstream.ts PORT
 *
 * Serves `/o/KEY/SIZE` (GET with ranges, HEAD, DELETE), takes PUT and POST anywhere and answers with the SHA-256 of
 * what came, echoes WebSocket messages. Told `{ mode }` by its parent, it mistreats half of the requests that way.
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { WebSocketServer } from 'ws'
import { objectPiece } from './soak-object.ts'

/** Ways to mistreat requests. `unread`: their bodies are left unread for a while. */
export const MODES = ['healthy', 'garbage', 'partial', 'reset', 'silent', 'unread'] as const

/** One of them. */
export type Mode = (typeof MODES)[number]

let mode: Mode = 'healthy'
let count = 0

const server = createServer({ keepAliveTimeout: 3000 }, (req, res) => {
  req.on('error', () => {})
  if (mode === 'healthy' || count++ % 2 === 0) {
    serve(req, res)
    return
  }
  const { socket } = req
  switch (mode) {
    case 'garbage':
      socket.end('SSH-2.0-what\r\n\0\xff\r\n\r\n', 'latin1')
      break
    case 'partial':
      socket.end(
        count % 4 < 2
          ? 'HTTP/1.1 200 OK\r\nContent-Le'
          : 'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot all',
      )
      break
    case 'reset':
      if (count % 4 < 2) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot all')
      setTimeout(() => socket.resetAndDestroy(), 5)
      break
    case 'silent':
      req.resume()
      break
    case 'unread':
      setTimeout(() => serve(req, res), 1500)
      break
  }
})
server.requestTimeout = 0

function serve(req: IncomingMessage, res: ServerResponse): void {
  const [, key, size] = /^\/o\/([0-9]+)\/([0-9]+)$/.exec(req.url ?? '') ?? []
  if (req.method === 'PUT' || req.method === 'POST') {
    const hash = createHash('sha256')
    let bytes = 0
    req.on('data', (chunk: Buffer) => {
      hash.update(chunk)
      bytes += chunk.length
    })
    req.on('end', () => {
      const body = JSON.stringify({ sha256: hash.digest('hex'), bytes })
      res.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': body.length })
      res.end(body)
    })
    return
  }
  req.resume()
  if (req.method === 'DELETE') {
    res.writeHead(204).end()
    return
  }
  const whole = Number(size ?? 0)
  const range = /^bytes=([0-9]+)-([0-9]+)$/.exec(req.headers.range ?? '')
  const from = range === null ? 0 : Number(range[1])
  const to = range === null ? whole : Number(range[2]) + 1
  res.writeHead(range === null ? 200 : 206, {
    'Content-Length': to - from,
    ...(range === null ? {} : { 'Content-Range': `bytes ${from}-${to - 1}/${whole}` }),
  })
  if (req.method === 'HEAD') res.end()
  else send(res, Number(key ?? 0), from, to)
}

/** Streams an object, as fast as it is taken. */
function send(res: ServerResponse, key: number, from: number, to: number): void {
  for (let at = from; at < to; ) {
    const piece = objectPiece(key, at, to - at)
    at += piece.length
    if (res.destroyed) return
    if (!res.write(piece) && at < to) {
      res.once('drain', () => send(res, key, at, to))
      return
    }
  }
  res.end()
}

const sockets = new WebSocketServer({ server })
sockets.on('connection', (socket) => {
  socket.on('error', () => {})
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
})

process.on('message', (told: { readonly mode: Mode }) => {
  mode = told.mode
})
process.on('disconnect', () => process.exit())
server.listen(Number(process.argv[2]), '127.0.0.1', () =>
  process.send?.({ port: (server.address() as AddressInfo).port }),
)
