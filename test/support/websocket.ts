/** A WebSocket server that echoes, as an upstream. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { type ServerOptions, WebSocketServer } from 'ws'

/** Starts the server; `requests` has the handshakes that it accepted. */
export async function echoServer(t: Test, options: ServerOptions = {}) {
  const server = createServer()
  const sockets = new WebSocketServer({ server, ...options })
  const requests: { readonly url: string | undefined; readonly headers: NodeJS.Dict<string | string[]> }[] =
    []
  sockets.on('connection', (socket, { url, headers }) => {
    requests.push({ url, headers })
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    sockets.close()
    server.close()
    server.closeAllConnections()
  })
  return { port: (server.address() as AddressInfo).port, requests }
}
