/**
 * The log: one JSON line for each event on standard output, by pino.
 * No line holds a token, a secret or a key. A closed or full stdout never stops traffic or ends the process.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pino, { type DestinationStream } from 'pino'

export type { Logger } from 'pino'
/** Logs an internal error of a request. */
export type ReportError = (requestId: string, error: unknown) => void

/** After a failed write. */
const FLUSH_MS = 1000
/** After a line, further ones of this time are written together, because each write wakes a thread. */
const GATHER_MS = 10
/** Characters. More are written at once. */
const MAX_GATHERED = 16 * 1024

/** Writes log lines to stdout. `process.stdout` must be used before: it makes a pipe non-blocking. */
export class LogDestination {
  /** The number of lines that were dropped because the reader was slow or a write failed. */
  dropped = 0
  #isOpen = true
  /** The lines that wait to be written together. */
  #gathered = ''
  #gathering: NodeJS.Timeout | undefined
  #flushing: NodeJS.Timeout | undefined
  readonly #stream = pino.destination({
    dest: 1,
    sync: false,
    maxLength: 1024 * 1024, // while the reader is slow, pino drops the lines beyond this length
    minLength: 1, // a flush needs it
  })

  constructor() {
    this.#stream.on('drop', (lines: string) => {
      this.dropped += lines.split('\n').length - 1
    })
    // Without a listener, the error of a full disk ends the process. pino itself handles a closed pipe.
    this.#stream.on('error', () => this.#flushLater())
    // pino flushes at exit. If the reader of a full pipe is stuck, the flush would wait forever.
    // Node itself waits for a write that has begun.
    process.prependListener('exit', () => {
      this.#isOpen = false
      this.#writeGathered()
      this.#stream.destroy()
    })
  }

  /** Never blocks. */
  write(line: string): void {
    if (!this.#isOpen) {
      return
    }
    if (this.#gathering === undefined) {
      this.#stream.write(line)
      this.#gather()
      return
    }
    this.#gathered += line
    if (this.#gathered.length >= MAX_GATHERED) {
      this.#writeGathered()
    }
  }

  #gather(): void {
    this.#gathering = setTimeout(() => {
      this.#gathering = undefined
      if (this.#gathered !== '') {
        this.#writeGathered()
        this.#gather()
      }
    }, GATHER_MS)
  }

  #writeGathered(): void {
    const lines = this.#gathered
    this.#gathered = ''
    if (lines !== '') {
      this.#stream.write(lines)
    }
  }

  /** pino repeats a failed write only when it flushes. */
  #flushLater(): void {
    this.#flushing ??= setTimeout(() => {
      this.#flushing = undefined
      if (this.#isOpen) {
        this.#stream.flush()
      }
    }, FLUSH_MS).unref()
  }

  /** Accepts no more lines, and writes the queued lines for at most half a second. */
  async close(): Promise<void> {
    this.#isOpen = false
    clearTimeout(this.#gathering)
    this.#writeGathered()
    const closed = new Promise((resolve) => this.#stream.once('close', resolve))
    this.#stream.end()
    await Promise.race([closed, sleep(500)])
  }
}

export const createLog = (level: string, destination: DestinationStream) =>
  pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: ['authorization', 'headers', 'rawPacket', 'secret', 'token'], // headers may hold a token
      serializers: { err: serializeError },
    },
    destination,
  )

/**
 * Omits all other fields of an error:
 * Node attaches the raw bytes of a malformed request, which may hold a token.
 */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) {
    return { type: typeof error }
  }
  const { name, message, stack } = error
  return { type: name, code: 'code' in error ? String(error.code) : undefined, message, stack }
}

const MAX_LOGGED_ITEMS = 20
export const loggedItems = <T>(items: readonly T[]): readonly T[] => items.slice(0, MAX_LOGGED_ITEMS)

export const loggable = (text: string, maxLength = 256): string =>
  printable(text.length > maxLength ? `${text.slice(0, maxLength)}…` : text)

/** Escapes the characters that control a terminal, break a line or reverse text (CVE-2021-42574). */
export const printable = (text: string): string =>
  text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
