/**
 * The bounds of the admin listener: what its clients may cost the requests that this process is for.
 *
 * In: connections, and requests on them. Out: one request of a connection at a time, in order; a few more wait, and a
 * connection that sends still more ends with those. Where there are too many connections the oldest unused one makes
 * room: a probe must get in, however many others are open and silent.
 *
 * @module
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { lingerThenClose } from '../http/linger.ts'

/** How much is allowed. */
export interface AdminBounds {
  /** Open connections. */
  readonly connections: number
  /** Requests of one connection that are not answered yet. With so many it ends: that is no client of ours. */
  readonly unanswered: number
}

/** What is not answered yet on each connection, beginning with what is being answered. In order of their age. */
type Connections = Map<Socket, Unanswered[]>

interface Unanswered {
  readonly req: IncomingMessage
  readonly res: ServerResponse
}

/** Hands the requests of a server to whoever answers them, within the bounds. */
export function answerWithin(
  bounds: AdminBounds,
  server: Server,
  answer: (req: IncomingMessage, res: ServerResponse) => void,
): void {
  const connections: Connections = new Map()
  server.on('connection', (socket) => {
    if (connections.size === bounds.connections) {
      const spare = mostDispensable(connections)
      if (spare !== undefined) connections.delete(spare)
      spare?.destroy()
    }
    connections.set(socket, [])
    socket.once('close', () => connections.delete(socket))
  })
  server.on('request', (req, res) => {
    const unanswered = connections.get(req.socket)
    // It has made room for another, or ends with what came before this.
    if (unanswered === undefined || unanswered.at(-1)?.res.shouldKeepAlive === false) return
    unanswered.push({ req, res })
    if (unanswered.length === bounds.unanswered) endWith(res, req.socket)
    res.once('finish', () => {
      unanswered.shift()
      const [next] = unanswered
      if (next !== undefined) answer(next.req, next.res)
    })
    if (unanswered.length === 1) answer(req, res)
  })
}

/** The oldest connection that is unused, or the oldest of all. */
function mostDispensable(connections: Connections): Socket | undefined {
  for (const [socket, unanswered] of connections) if (unanswered.length === 0) return socket
  return connections.keys().next().value
}

/** Makes a response the last one of its connection; what comes behind it is dropped. */
function endWith(res: ServerResponse, socket: Socket): void {
  res.shouldKeepAlive = false
  let lingering = false
  socket.pause()
  socket.on('resume', () => {
    if (!lingering) socket.pause() // Node goes on reading at the end of each request
  })
  // Node calls it when the last response has been written.
  socket.destroySoon = () => {
    lingering = true
    lingerThenClose(socket)
  }
}
