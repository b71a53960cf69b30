/**
 * The log: one JSON line for each event on standard output.
 *
 * Lines are written in the background and dropped when nobody reads them: a closed or full pipe must never stop
 * traffic, nor grow the process. Nothing that is logged may hold a token, a secret or a key; text that clients
 * chose is cut to a length and, being JSON, cannot break out of its line.
 *
 * The destination is plain code over `fs.write`, because pino's own waits 100 ms whenever a pipe is full, which
 * loses most of the lines as soon as the reader is a little late, and its `flush` does not wait for lines that
 * are being written: the last ones would be lost at the end of the process.
 *
 * @module
 */
import { write as writeDescriptor } from 'node:fs'
import pino, { type DestinationStream, type Logger } from 'pino'

export type { Logger } from 'pino'

/** Where lines go, without ever making their writer wait. */
export interface LogDestination extends DestinationStream {
  /** How many lines were lost to a reader that was too slow or gone, or to a full disk. */
  readonly dropped: number
  /** Resolves when every line is written or lost; waits at most `patienceMs` for a reader that does not read. */
  flush(patienceMs?: number): Promise<void>
  /**
   * Other processes write to the descriptor, too: from now on whole lines only, and no more at once than a pipe takes
   * in one piece (PIPE_BUF, pipe(7)), or their lines and ours would run into each other.
   */
  share(): void
}

/** How a descriptor is written to; `fs.write` but for tests. */
export type WriteDescriptor = (
  fd: number,
  bytes: Buffer,
  offset: number,
  done: (error: NodeJS.ErrnoException | null, written: number) => void,
) => void

/** What a destination works with. */
export interface LogDestinationOptions {
  /**
   * Default: 1, standard output. A pipe must be in non-blocking mode, or a write to a full one holds a thread until
   * somebody reads, even at the end of the process. Node puts it there when `process.stdout` is first used.
   */
  readonly fd?: number
  readonly write?: WriteDescriptor
  /** Characters that may wait for a slow reader before lines are dropped; default 1 Mi. */
  readonly maxWaiting?: number
  /**
   * Milliseconds between two writes; default 10. Lines that come between are written together: under a flood of
   * refusals, a write for each few of them was a fifth of their cost.
   */
  readonly gatherMs?: number
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow?: () => number
}

/** What a pipe takes whole or not at all, in bytes. */
const PIPE_BUF = 4096

/** Characters that are gathered at the most, where nobody else writes to the descriptor: as much as a pipe holds. */
const MOST_GATHERED = 64 * 1024

/** How long a full pipe is left alone before it is tried again, in milliseconds. */
const FULL_PIPE_MS = 10

/** Opens standard output, or another descriptor, for lines. */
export function openLogDestination(options: LogDestinationOptions = {}): LogDestination {
  const { fd = 1, write = writeDescriptor, maxWaiting = 1024 * 1024, gatherMs = 10 } = options
  const { monotonicNow = () => performance.now() } = options
  let writtenAt = Number.NEGATIVE_INFINITY
  let gathering: NodeJS.Timeout | undefined
  let waiting = ''
  let linesWaiting = 0
  let linesUnderWay = 0
  let dropped = 0
  let isShared = false
  const whenIdle = new Set<() => void>()

  const writeWaiting = (): void => {
    clearTimeout(gathering)
    gathering = undefined
    if (linesWaiting === 0) {
      for (const resolve of whenIdle) resolve()
      return
    }
    const [text, lines] = isShared ? firstLines(waiting, PIPE_BUF) : [waiting, linesWaiting]
    const bytes = Buffer.from(text)
    linesUnderWay = lines
    waiting = waiting.slice(text.length)
    linesWaiting -= lines
    writtenAt = monotonicNow()
    writeFrom(bytes, 0)
  }

  /** Writes now, or with what comes until the time between two writes has passed. */
  const writeInTime = (): void => {
    const early = writtenAt + gatherMs - monotonicNow()
    // Of what is written in pieces the next one follows at once.
    if (
      early <= 0 ||
      waiting.length > (isShared ? PIPE_BUF : MOST_GATHERED) ||
      linesWaiting === 0 ||
      whenIdle.size > 0
    )
      writeWaiting()
    else gathering ??= setTimeout(writeWaiting, early)
  }

  const writeFrom = (bytes: Buffer, offset: number): void => {
    write(fd, bytes, offset, (error, written) => {
      if (error?.code === 'EAGAIN') {
        setTimeout(writeFrom, FULL_PIPE_MS, bytes, offset).unref()
        return
      }
      if (error === null && offset + written < bytes.length) {
        writeFrom(bytes, offset + written)
        return
      }
      if (error !== null) dropped += linesUnderWay
      linesUnderWay = 0
      writeInTime()
    })
  }

  return {
    write(line) {
      if (waiting.length + line.length > maxWaiting) {
        dropped++
        return
      }
      waiting += line
      linesWaiting++
      if (linesUnderWay === 0) writeInTime()
    },
    get dropped() {
      return dropped
    },
    share() {
      isShared = true
    },
    flush: (patienceMs = 500) =>
      new Promise((resolve) => {
        if (linesUnderWay === 0 && linesWaiting === 0) {
          resolve()
          return
        }
        const done = () => {
          clearTimeout(giveUp)
          whenIdle.delete(done)
          resolve()
        }
        const giveUp = setTimeout(done, patienceMs)
        whenIdle.add(done)
        if (linesUnderWay === 0) writeWaiting()
      }),
  }
}

/** As many whole lines as have so many bytes, one at the least, and their number. */
function firstLines(text: string, maxBytes: number): [text: string, lines: number] {
  let end = text.indexOf('\n') + 1
  let bytes = Buffer.byteLength(text.slice(0, end))
  let lines = 1
  for (let next = text.indexOf('\n', end) + 1; next > 0; next = text.indexOf('\n', end) + 1) {
    bytes += Buffer.byteLength(text.slice(end, next))
    if (bytes > maxBytes) break
    end = next
    lines++
  }
  return [text.slice(0, end), lines]
}

let stampedAt = 0
let stamp = ''

/** The time of a line (RFC 3339); made once a millisecond, of which a flood of refusals brings dozens of lines. */
function timestamp(): string {
  const now = Date.now()
  if (now !== stampedAt) {
    stampedAt = now
    stamp = `,"time":"${new Date(now).toISOString()}"`
  }
  return stamp
}

/** Makes the logger. */
export function createLog(level: string, destination: DestinationStream): Logger {
  return pino({ level, base: null, timestamp, serializers: { err: plainError } }, destination)
}

/**
 * Writes a line at level `info` whose fields are JSON already, each with a comma before it. What pino does for each of a
 * dozen fields would be a tenth of the cost of a refused request.
 */
export function logRendered(log: Logger, fields: string, message: string): void {
  if (!log.isLevelEnabled('info')) return
  const { [pino.symbols.streamSym]: stream } = log as Logger & { [pino.symbols.streamSym]: DestinationStream }
  stream.write(`{"level":${pino.levels.values['info']}${timestamp()}${fields},"msg":"${message}"}\n`)
}

/** Makes what is told of faults of a listening socket, such as running out of descriptors. */
export function listenerFaults(log: Logger): (error: unknown) => void {
  return (error) => log.error({ err: error }, 'listener fault')
}

/**
 * What is logged of an error. Only these fields: Node hangs more on some errors, such as the raw bytes of a request
 * that could not be parsed, its token among them.
 */
function plainError(error: unknown): unknown {
  if (!(error instanceof Error)) return { type: typeof error }
  const { name, message, stack } = error
  const code = 'code' in error ? String(error.code) : undefined
  return { type: name, code, message, stack }
}

/**
 * Text that a client chose, cut to what a line may hold of it, without characters that control a terminal, break a
 * line, or make text run the other way round (CVE-2021-42574).
 */
export function loggable(text: string, maxLength = 256): string {
  const cut = text.length > maxLength ? `${text.slice(0, maxLength)}…` : text
  return cut.replace(/[\p{Cc}\p{Zl}\p{Zp}\u{202A}-\u{202E}\u{2066}-\u{2069}]/gu, '\u{FFFD}')
}
