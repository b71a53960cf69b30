/**
 * Reads an HTTP/1.1 message from bytes: what requests and responses have in common, their bodies and trailers.
 *
 * In: chunks as they come from a socket. Out: calls on a sink: body bytes, the end with its trailers. It is stricter
 * than a reader need be: anything on which two parsers could differ (bare line feeds, sizes in odd spellings, chunks
 * longer than they say) is a fault (RFC 9112, sections 2.2 and 7.1). Heads are read by whoever extends it.
 *
 * @module
 */
import { checkFieldLines, NO_LINES, parseFieldLines } from './field-lines.ts'
import { MessageFault } from './message-fault.ts'

/** How the end of a body is told. `close`: by the end of the connection. */
export type Framing = 'none' | 'length' | 'chunked' | 'close'

/** The bounds of a head, and of trailers. */
export interface MessageLimits {
  readonly headerBytes: number
  readonly headerLines: number
}

/** Who is told what was read. */
export interface MessageSink {
  /**
   * Bytes of the body; `last` when they are known to be its end, so that one write can carry both. The memory of the
   * chunk is read into again after the call, unless it is held.
   */
  onBody(chunk: Buffer, last: boolean): void
  /** The message is whole. Not called before all of its bytes were. */
  onEnd(rawTrailers: readonly string[]): void
}

const State = {
  head: 0,
  length: 1,
  chunkSize: 2,
  chunkData: 3,
  chunkEnd: 4,
  trailers: 5,
  close: 6,
  done: 7,
} as const
type State = (typeof State)[keyof typeof State]

const EMPTY = Buffer.alloc(0)
/** Where a digit stands is its value. `A` to `F` are read by the general way. */
const HEX = Buffer.from('0123456789abcdef')
/** A chunk-size line carries extensions that nobody uses; a long one is an attack on our memory. */
const MAX_CHUNK_LINE = 256

/** Reads one message. */
export abstract class MessageReader {
  #state: State = State.head
  /** Bytes of the element that is not whole yet. */
  #kept: Buffer = EMPTY
  /** The memory in which they lie, with room behind them. */
  #memory: Buffer = EMPTY
  #left = 0
  /** How many bytes of the element have been looked at before: an element that drips in is not looked at anew. */
  protected scanned = 0
  /** Bytes of whole lines that have been looked at, of trailers that are not whole. */
  #checked = 0
  readonly #sink: MessageSink
  protected readonly limits: MessageLimits

  constructor(sink: MessageSink, limits: MessageLimits) {
    this.#sink = sink
    this.limits = limits
  }

  /** Whether the message is whole. */
  get done(): boolean {
    return this.#state === State.done
  }

  /** Whether a head is being read, or waited for. */
  get atHead(): boolean {
    return this.#state === State.head
  }

  /** Whether bytes have come of an element (a head, a chunk line, trailers) that is not whole yet. */
  get isWithin(): boolean {
    return this.#kept.length > 0
  }

  /**
   * Takes the next bytes.
   *
   * @returns how many bytes of the chunk belong to this message: fewer than it holds only behind its end
   * @throws MessageFault when they are no message; the connection can then not be used for anything
   */
  push(chunk: Buffer): number {
    const before = this.#kept.length
    const data = before > 0 ? this.#append(chunk) : chunk
    let at = 0
    while (at < data.length && this.#state !== State.done) {
      const next = this.#step(data, at)
      if (next < 0) {
        this.#keep(data, at, before)
        return chunk.length
      }
      this.scanned = 0
      at = next
    }
    this.#memory = EMPTY
    return at - before
  }

  /** Keeps an element that is not whole: at most a head, and seldom. */
  #keep(data: Buffer, at: number, before: number): void {
    const grows = at === 0 && before > 0
    if (!grows) this.#memory = Buffer.from(data.subarray(at))
    this.#kept = grows ? data : this.#memory
    this.scanned = data.length - at
  }

  /** Puts a chunk behind what is kept. Memory is only ever added to, never written again: a body may lie in it. */
  #append(chunk: Buffer): Buffer {
    const kept = this.#kept
    const length = kept.length + chunk.length
    if (length > this.#memory.length) {
      this.#memory = Buffer.allocUnsafeSlow(Math.max(length, 2 * kept.length))
      kept.copy(this.#memory)
    }
    chunk.copy(this.#memory, kept.length)
    this.#kept = EMPTY
    return this.#memory.subarray(0, length)
  }

  /** The other side closed cleanly. Returns whether that ended the body, rather than cut it. */
  close(): boolean {
    if (this.#state !== State.close) return false
    this.#finish(NO_LINES)
    return true
  }

  /** Reads a head at `at`; returns where what follows begins, or -1 when more bytes are needed. */
  protected abstract readHead(data: Buffer, at: number): number

  /** The head has been read: a body follows, or none. */
  protected beginBody(framing: Framing, contentLength: number): void {
    this.#left = contentLength
    if (framing === 'none' || (framing === 'length' && contentLength === 0)) this.#finish(NO_LINES)
    else if (framing === 'length') this.#state = State.length
    else this.#state = framing === 'chunked' ? State.chunkSize : State.close
  }

  /** What follows the head is not of this protocol, or is not believed: nothing of it is read. */
  protected leave(): void {
    this.#state = State.done
  }

  /** Begins to read the next message. */
  protected restart(): void {
    this.#state = State.head
  }

  /** Reads one element at `at`; returns where the next begins, or -1 when more bytes are needed. */
  #step(data: Buffer, at: number): number {
    switch (this.#state) {
      case State.head:
        return this.readHead(data, at)
      case State.length:
      case State.chunkData:
        return this.#readCounted(data, at)
      case State.chunkSize:
        return this.#readChunkSize(data, at)
      case State.chunkEnd:
        return this.#readChunkEnd(data, at)
      case State.trailers:
        return this.#readTrailers(data, at)
      default:
        this.#sink.onBody(at === 0 ? data : data.subarray(at), false)
        return data.length
    }
  }

  #readCounted(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + this.#left)
    this.#left -= end - at
    const last = this.#left === 0 && this.#state === State.length
    this.#sink.onBody(at === 0 && end === data.length ? data : data.subarray(at, end), last)
    if (last) this.#finish(NO_LINES)
    else if (this.#left === 0) this.#state = State.chunkEnd
    return end
  }

  #readChunkSize(data: Buffer, at: number): number {
    // One digit and no extension, as whoever sends thousands of chunks in a packet has to write them.
    const digit = data[at + 1] === 0x0d && data[at + 2] === 0x0a ? HEX.indexOf(data[at] as number) : -1
    if (digit > 0) {
      this.#left = digit
      this.#state = State.chunkData
      return at + 3
    }
    const end = data.indexOf('\r\n', at, 'latin1')
    if (end < 0 ? data.length - at > MAX_CHUNK_LINE + 1 : end - at > MAX_CHUNK_LINE)
      throw new MessageFault('chunk line too long')
    const line = data.toString('latin1', at, end < 0 ? data.length : end)
    if (end < 0) return beginsChunkLine(line)
    this.#left = chunkSize(line)
    this.#state = this.#left === 0 ? State.trailers : State.chunkData
    return end + 2
  }

  #readChunkEnd(data: Buffer, at: number): number {
    if (data[at] !== 0x0d) throw new MessageFault('chunk longer than its size')
    if (at + 1 === data.length) return -1
    if (data[at + 1] !== 0x0a) throw new MessageFault('chunk longer than its size')
    this.#state = State.chunkSize
    return at + 2
  }

  #readTrailers(data: Buffer, at: number): number {
    if (data[at] === 0x0d) {
      if (at + 1 === data.length) return -1
      if (data[at + 1] !== 0x0a) throw new MessageFault('bad trailer section')
      this.#finish(NO_LINES)
      return at + 2
    }
    const end = data.indexOf('\r\n\r\n', at + Math.max(0, this.scanned - 3), 'latin1')
    if ((end < 0 ? data.length - 3 : end) - at > this.limits.headerBytes)
      throw new MessageFault('trailers too large', true)
    if (end < 0) {
      this.#checked = checkFieldLines(data, at + this.#checked, at + this.scanned) - at
      return -1
    }
    this.#checked = 0
    this.#finish(parseFieldLines(data.toString('latin1', at, end), 0, this.limits.headerLines))
    return end + 4
  }

  #finish(rawTrailers: readonly string[]): void {
    this.#state = State.done
    this.#sink.onEnd(rawTrailers)
  }
}

const CHUNK_LINE = /^([0-9A-Fa-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?(\r?)$/

/** The size in a chunk line; its extensions are skipped. White space between the two is read in two ways. */
function chunkSize(line: string): number {
  const [, digits, carriageReturn] = CHUNK_LINE.exec(line) ?? []
  if (digits === undefined || carriageReturn !== '') throw new MessageFault('bad chunk size')
  return Number.parseInt(digits, 16)
}

/** Says that more bytes are needed, unless what has come can be no chunk line, whatever follows. */
function beginsChunkLine(text: string): -1 {
  if (!CHUNK_LINE.test(text)) throw new MessageFault('bad chunk size')
  return -1
}
