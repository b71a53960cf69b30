/**
 * The log: one JSON line for each event on standard output, by pino.
 * No line holds a token, a secret or a key. A closed or full standard output never stops traffic or ends the process.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pino, { type DestinationStream, type Logger } from 'pino'

export type { Logger } from 'pino'

/** A destination of log lines. The writer never waits. */
export interface LogDestination {
  write(line: string): void
  /** How many lines were dropped, because the output was not read in time or failed. */
  readonly dropped: number
  /** Writes the queued lines, for at most half a second, and accepts no more. */
  close(): Promise<void>
}

/** A pipe must be non-blocking, which Node sets on the first use of `process.stdout`, or a full one blocks a thread. */
export function openLogDestination(): LogDestination {
  const stream = pino.destination({
    dest: 1,
    sync: false,
    maxLength: 1024 * 1024, // more is dropped while the reader is slow
    // After a failed write, as to a full disk, only a flush tries again, and only with a `minLength`.
    minLength: 1,
    periodicFlush: 1000,
  })
  let dropped = 0
  let open = true
  stream.on('drop', () => dropped++)
  // A full disk is such an error; pino itself stops writing to a closed pipe.
  stream.on('error', () => {})
  // pino flushes at exit, and would wait forever for a full pipe that is not read.
  process.prependListener('exit', () => stream.destroy())
  return {
    write(line) {
      if (open) stream.write(line)
    },
    get dropped() {
      return dropped
    },
    async close() {
      open = false
      const closed = new Promise((resolve) => stream.once('close', resolve))
      stream.end()
      await Promise.race([closed, sleep(500)])
    },
  }
}

export function createLog(level: string, destination: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: ['authorization', 'headers', 'rawPacket', 'secret', 'token'], // headers may hold a token
      serializers: { err: serializeError },
    },
    destination,
  )
}

/** Other fields are left out: Node attaches the raw bytes of a malformed request, its token included. */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return { type: typeof error }
  const { name, message, stack } = error
  const code = 'code' in error ? String(error.code) : undefined
  return { type: name, code, message, stack }
}

const MAX_LOGGED_ITEMS = 20
export const loggedItems = <T>(items: readonly T[]): readonly T[] => items.slice(0, MAX_LOGGED_ITEMS)

export function loggable(text: string, maxLength = 256): string {
  return printable(text.length > maxLength ? `${text.slice(0, maxLength)}…` : text)
}

/** Escapes what controls a terminal, breaks a line or reverses text (CVE-2021-42574). */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
