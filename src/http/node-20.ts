/** What only Node 20 needs. Once it is not supported, this file goes: each function says what replaces it. */
import { MessageChannel } from 'node:worker_threads'

/** Frees the memory of a buffer before a garbage collection would. `buffer.transfer(0)` replaces it. */
export const freeMemory: (buffer: ArrayBuffer) => void =
  'transfer' in ArrayBuffer.prototype ? (buffer) => buffer.transfer(0) : freeByPort()

/** A post to a port detaches the memory. No one receives the message: the other end is closed. */
function freeByPort(): (buffer: ArrayBuffer) => void {
  const { port1, port2 } = new MessageChannel()
  port2.close()
  return (buffer) => port1.postMessage(null, [buffer])
}
