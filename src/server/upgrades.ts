/**
 * Offers to upgrade a connection (RFC 9110, section 7.8), and the socket that Node detaches from HTTP for one.
 */
import type { Socket } from 'node:net'
import { type SidecarRequest, SidecarResponse } from './context.ts'

/** Whether a request is a WebSocket handshake without a body; any other offer is ignored. */
export function isHandshake({ method, httpVersionMinor, headers }: SidecarRequest): boolean {
  const { upgrade, 'content-length': length = '0', 'transfer-encoding': coding } = headers
  return (
    upgrade?.toLowerCase() === 'websocket' &&
    method === 'GET' &&
    httpVersionMinor === 1 &&
    length === '0' &&
    coding === undefined
  )
}

/** Replaces the listeners that Node has removed. `current`: the response that is being sent. */
export function replaceListeners(
  socket: Socket,
  current: () => SidecarResponse | undefined,
  onTimeout: () => void,
): void {
  socket.on('error', () => socket.destroy())
  socket.on('drain', () => current()?.emit('drain'))
  socket.on('timeout', onTimeout)
}

/** Attaches a response to the detached socket of a request. `onSent`: the connection ends with it. */
export function responseOn(req: SidecarRequest, firstBytes: Buffer, onSent: () => void): SidecarResponse {
  const res = new SidecarResponse(req)
  const { socket } = req
  req.context.upgrade = { firstBytes }
  res.shouldKeepAlive = false
  res.assignSocket(socket)
  res.once('finish', () => {
    res.detachSocket(socket)
    onSent()
    res.emit('close')
  })
  return res
}
