/**
 * Delays work until Node has read or parsed what has arrived. In each turn of the event loop, Node first reads all sockets that
 * have bytes (poll phase), then calls `setImmediate` callbacks (check phase). Promises continue between two callbacks.
 */

/** Resolves after Node's parser has parsed all bytes of the current read, which is one synchronous call. */
export const afterParsing = <T>(value: T | Promise<T>): Promise<T> => Promise.resolve(value)

/** Calls back after Node has read all sockets of this turn, and has tried to send what was written. */
export function afterReads(callback: () => void): void {
  setImmediate(callback)
}

/** Calls back after Node has read all sockets once more. */
export function afterNextReads(callback: () => void): void {
  setImmediate(() => setImmediate(callback))
}
