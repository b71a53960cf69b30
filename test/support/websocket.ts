/** WebSockets: what Node can do, and a server that echoes, as an upstream. */
import { createServer } from 'node:http'
import type { Test } from 'tap'
import { type ServerOptions, WebSocketServer } from 'ws'
import { listen } from './listen.ts'

/** Since Node 24.9 and 22.21 a server may decline an offer to upgrade, and loses no bytes after it. */
export const DECLINES_UPGRADES = 'shouldUpgradeCallback' in createServer()

/** The header lines of a handshake, with the key of RFC 6455. */
export const HANDSHAKE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
]

/** Starts the server, which also answers plain requests; `requests` has the handshakes that it accepted. */
export async function echoServer(t: Test, options: ServerOptions = {}) {
  const server = createServer((_req, res) => res.end())
  const sockets = new WebSocketServer({ server, ...options })
  const requests: { readonly url: string | undefined; readonly headers: NodeJS.Dict<string | string[]> }[] =
    []
  sockets.on('connection', (socket, { url, headers }) => {
    requests.push({ url, headers })
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
  })
  t.teardown(() => sockets.close())
  return { port: await listen(t, server), requests }
}
