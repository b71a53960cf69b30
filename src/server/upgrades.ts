/**
 * The socket that Node detaches from HTTP for an offer to upgrade (RFC 9110, section 7.8), and for CONNECT.
 */
import type { Socket } from 'node:net'
import { type SidecarRequest, SidecarResponse } from './context.ts'

/** Replaces the listeners that Node has removed. */
export function replaceListeners(socket: Socket, onDrain: () => void, onTimeout: () => void): void {
  socket.on('error', () => socket.destroy())
  socket.on('drain', onDrain)
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
