/**
 * Delays work until Node has read what has arrived. In each turn of the event loop, Node first reads all sockets that have
 * bytes (poll phase), then calls `setImmediate` callbacks (check phase).
 */

/** Calls back after Node has read all sockets of this turn, and has tried to send what was written. */
export const afterReads = (callback: () => void) => setImmediate(callback)

/** Calls back after Node has read all sockets once more. */
export const afterNextReads = (callback: () => void) => setImmediate(() => setImmediate(callback))
