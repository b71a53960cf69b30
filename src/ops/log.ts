/**
 * The log: one JSON line for each event on standard output.
 *
 * Lines are written in the background and dropped when nobody reads them: a closed or full pipe must never stop
 * traffic. Nothing that is logged may hold a token, a secret or a key; text that clients chose is cut to a length
 * and, being JSON, cannot break out of its line.
 *
 * @module
 */
import pino, { type DestinationStream, type Logger } from 'pino'

export type { Logger } from 'pino'

/** Bytes that may wait for a slow reader before lines are dropped. */
const MAX_WAITING_BYTES = 1024 * 1024

/** How many lines were lost to a reader that was too slow or gone. */
export interface LogDestination extends DestinationStream {
  readonly dropped: number
  /** Writes what waits, without waiting for a reader that does not read. */
  flush(): Promise<void>
}

/** Opens standard output, or another descriptor, for lines. */
export function openLogDestination(fd = 1): LogDestination {
  const stream = pino.destination({ fd, sync: false, maxLength: MAX_WAITING_BYTES })
  let dropped = 0
  stream.on('drop', () => {
    dropped++
  })
  stream.on('error', () => {
    dropped++ // a reader that went away: without a listener this would end the process
  })
  return {
    write: (line) => void stream.write(line),
    get dropped() {
      return dropped
    },
    flush: () =>
      new Promise((resolve) => {
        const giveUp = setTimeout(resolve, 500)
        stream.flush(() => {
          clearTimeout(giveUp)
          resolve()
        })
      }),
  }
}

/** Makes the logger. */
export function createLog(level: string, destination: DestinationStream): Logger {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, destination)
}

/** Text that a client chose, cut to what a line may hold of it, without control and line-breaking characters. */
export function loggable(text: string, maxLength = 256): string {
  const cut = text.length > maxLength ? `${text.slice(0, maxLength)}…` : text
  return cut.replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, '\u{FFFD}')
}
