/**
 * Parses the HTTP/1.1 responses of one upstream connection (RFC 9112).
 * In: chunks as the socket reads them. Out: calls on a sink. Stricter than a client must be, because a misread response
 * reaches another client: two lengths, a length beside chunks, bare line feeds and unknown codings are errors.
 */
import { type ConnectionOptions, HeaderKind, headerKind, parseConnection } from '../http/headers.ts'
import { ResponseSyntaxError } from './upstream-errors.ts'

/** What marks the end of a body. `close`: the end of the connection. */
export type Framing = 'none' | 'length' | 'chunked' | 'close'

export interface UpstreamHead {
  readonly status: number
  readonly statusText: string
  readonly rawHeaders: readonly string[]
  /** `kinds[i]` is that of the name `rawHeaders[2 * i]`. */
  readonly kinds: readonly HeaderKind[]
  readonly connectionOptions: ConnectionOptions | undefined
  readonly framing: Framing
  /** 0 unless the framing is `length`. */
  readonly contentLength: number
  readonly keepAlive: boolean
  readonly keepAliveSeconds: number | undefined
}

export interface ResponseSink {
  onInformational(head: UpstreamHead): void
  /** @throws ResponseSyntaxError for a 101 that the request has not asked for */
  onHead(head: UpstreamHead): void
  /** The memory of the chunk is reused after the read. */
  onBody(chunk: Buffer): void
  onEnd(rawTrailers: readonly string[]): void
}

export interface ResponseLimits {
  readonly headerBytes: number
  readonly headerLines: number
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
const NO_LINES: readonly string[] = []
/** A chunk-size line carries extensions that no server uses. */
const MAX_CHUNK_LINE = 256
/** Informational responses are not progress: an upstream may not send them for ever. */
const MAX_INFORMATIONAL = 100

export class ResponseParser {
  readonly #limits: ResponseLimits
  #sink: ResponseSink | undefined
  #isHeadRequest = false
  #state: State = State.done
  #partial: Buffer = EMPTY
  #left = 0
  #informational = 0
  #head: UpstreamHead | undefined

  constructor(limits: ResponseLimits) {
    this.#limits = limits
  }

  start(sink: ResponseSink, isHeadRequest: boolean): void {
    this.#sink = sink
    this.#isHeadRequest = isHeadRequest
    this.#state = State.head
    this.#partial = EMPTY
    this.#informational = 0
    this.#head = undefined
  }

  get done(): boolean {
    return this.#state === State.done
  }

  get head(): UpstreamHead | undefined {
    return this.#head
  }

  /** Returns whether all bytes belong to this response. After a ResponseSyntaxError the connection must be closed. */
  push(chunk: Buffer): boolean {
    const data = this.#partial.length > 0 ? Buffer.concat([this.#partial, chunk]) : chunk
    this.#partial = EMPTY
    let at = 0
    while (at < data.length && this.#state !== State.done) {
      const next = this.#step(data, at)
      if (next < 0) {
        this.#partial = Buffer.from(data.subarray(at)) // at most a head, and seldom incomplete
        return true
      }
      at = next
    }
    return at === data.length
  }

  /** Called when the connection ended cleanly. Returns whether that is the end of the body. */
  close(): boolean {
    if (this.#state !== State.close) return false
    this.#finish(NO_LINES)
    return true
  }

  /** Parses one element at `at`; returns the start of the next one, or -1 when bytes are missing. */
  #step(data: Buffer, at: number): number {
    switch (this.#state) {
      case State.head:
        return this.#readHead(data, at)
      case State.length:
      case State.chunkData:
        return this.#readCounted(data, at)
      case State.chunkSize:
        return this.#readChunkSize(data, at)
      case State.chunkEnd:
        if (data[at] !== 0x0d || (at + 1 < data.length && data[at + 1] !== 0x0a))
          throw new ResponseSyntaxError('chunk longer than its size')
        if (at + 1 === data.length) return -1
        this.#state = State.chunkSize
        return at + 2
      case State.trailers:
        return this.#readTrailers(data, at)
      default:
        this.#sink?.onBody(data.subarray(at))
        return data.length
    }
  }

  #readHead(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 3 : end) - at > this.#limits.headerBytes)
      throw new ResponseSyntaxError('response head too large')
    const text = data.toString('latin1', at, end < 0 ? data.length : end)
    if (end < 0) {
      // Fails on the first bytes that cannot be HTTP: an SSH server, for example, sends its banner and waits.
      if (!text.startsWith('HTTP/'.slice(0, text.length)) || /[^\r]\n/.test(text))
        throw new ResponseSyntaxError('no HTTP response')
      return -1
    }
    const head = parseHead(text, this.#isHeadRequest, this.#limits.headerLines)
    if (head.status < 200 && head.status !== 101) {
      if (++this.#informational > MAX_INFORMATIONAL)
        throw new ResponseSyntaxError('too many informational responses')
      this.#sink?.onInformational(head)
      return end + 4
    }
    this.#head = head
    this.#left = head.contentLength
    this.#sink?.onHead(head)
    if (head.framing === 'none' || (head.framing === 'length' && this.#left === 0)) this.#finish(NO_LINES)
    else if (head.framing === 'length') this.#state = State.length
    else this.#state = head.framing === 'chunked' ? State.chunkSize : State.close
    return end + 4
  }

  #readCounted(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + this.#left)
    this.#left -= end - at
    const complete = this.#left === 0 && this.#state === State.length
    this.#sink?.onBody(data.subarray(at, end))
    if (complete) this.#finish(NO_LINES)
    else if (this.#left === 0) this.#state = State.chunkEnd
    return end
  }

  #readChunkSize(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 1 : end) - at > MAX_CHUNK_LINE)
      throw new ResponseSyntaxError('chunk line too long')
    const line = data.toString('latin1', at, end < 0 ? data.length : end)
    const [, digits, carriageReturn] = CHUNK_LINE.exec(line) ?? []
    if (digits === undefined) throw new ResponseSyntaxError('bad chunk size')
    if (end < 0) return -1
    if (carriageReturn !== '') throw new ResponseSyntaxError('bad chunk size')
    this.#left = Number.parseInt(digits, 16)
    this.#state = this.#left === 0 ? State.trailers : State.chunkData
    return end + 2
  }

  #readTrailers(data: Buffer, at: number): number {
    if (data[at] === 0x0d && data[at + 1] === 0x0a) {
      this.#finish(NO_LINES)
      return at + 2
    }
    const end = data.indexOf('\r\n\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 3 : end) - at > this.#limits.headerBytes)
      throw new ResponseSyntaxError('trailers too large')
    if (end < 0) return -1
    const lines: string[] = []
    parseFieldLines(data.toString('latin1', at, end), 0, this.#limits.headerLines, lines, [])
    this.#finish(lines)
    return end + 4
  }

  #finish(rawTrailers: readonly string[]): void {
    this.#state = State.done
    this.#sink?.onEnd(rawTrailers)
  }
}

/** A size and ignored extensions. White space between them is refused, because parsers disagree on it. */
const CHUNK_LINE = /^([0-9A-Fa-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?(\r?)$/
/** Controls except the tab, and carriage returns and line feeds that are not a pair. */
const BAD_TEXT = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n/

function parseHead(text: string, isHeadRequest: boolean, maxLines: number): UpstreamHead {
  if (BAD_TEXT.test(text)) throw new ResponseSyntaxError('control character in the head')
  const lineEnd = text.indexOf('\r\n')
  const statusLine = lineEnd < 0 ? text : text.slice(0, lineEnd)
  // The space after the status code is required even without a reason phrase (RFC 9112, section 4).
  if (!/^HTTP\/1\.[01] [1-9][0-9]{2} /.test(statusLine)) throw new ResponseSyntaxError('bad status line')
  const http10 = statusLine.charCodeAt(7) === 0x30
  const status = Number(statusLine.slice(9, 12))
  const rawHeaders: string[] = []
  const kinds: HeaderKind[] = []
  if (lineEnd >= 0) parseFieldLines(text, lineEnd + 2, maxLines, rawHeaders, kinds)

  let length = -1
  let chunked = false
  let connection: string | undefined
  let keepAliveSeconds: number | undefined
  for (let line = 0; line < kinds.length; line++) {
    const value = rawHeaders[2 * line + 1] as string
    switch (kinds[line]) {
      case HeaderKind.contentLength:
        if (length >= 0 || !/^[0-9]{1,15}$/.test(value)) throw new ResponseSyntaxError('bad length')
        length = Number(value)
        break
      case HeaderKind.transferEncoding:
        if (chunked || http10 || value.toLowerCase() !== 'chunked')
          throw new ResponseSyntaxError('bad transfer coding')
        chunked = true
        break
      case HeaderKind.connection:
        connection = connection === undefined ? value : `${connection},${value}`
        break
      case HeaderKind.keepAlive:
        keepAliveSeconds = Number(
          /(?:^|[,\s])timeout=([0-9]{1,6})(?:$|[,\s])/i.exec(value)?.[1] ?? Number.NaN,
        )
        break
    }
  }
  const connectionOptions = connection === undefined ? undefined : parseConnection(connection)
  const isInformational = status < 200 && status !== 101 // what follows a 101 ends with the connection
  const isBodiless = isHeadRequest || isInformational || status === 204 || status === 304
  // A response without a body may have both: they describe that of a GET.
  if (chunked && length >= 0 && !isBodiless) throw new ResponseSyntaxError('a length beside chunks')
  // A 204 that announces a body may be followed by it: the connection is not reused.
  const isFollowed = status === 204 && (chunked || length > 0)
  let framing: Framing = 'close'
  if (isBodiless) framing = 'none'
  else if (chunked) framing = 'chunked'
  else if (length >= 0) framing = 'length'
  return {
    status,
    statusText: statusLine.slice(13),
    rawHeaders,
    kinds,
    connectionOptions,
    framing,
    contentLength: framing === 'length' ? length : 0,
    keepAlive: !http10 && !isFollowed && framing !== 'close' && connectionOptions?.has('close') !== true,
    keepAliveSeconds: Number.isNaN(keepAliveSeconds) ? undefined : keepAliveSeconds,
  }
}

/** Splits field lines from `start` on into names and values alternating, and the kinds of the names. */
function parseFieldLines(
  text: string,
  start: number,
  maxLines: number,
  lines: string[],
  kinds: HeaderKind[],
): void {
  if (start === 0 && BAD_TEXT.test(text)) throw new ResponseSyntaxError('control character in the trailers')
  for (let at = start; at < text.length; ) {
    let end = text.indexOf('\r\n', at)
    if (end < 0) end = text.length
    const colon = text.indexOf(':', at)
    if (colon <= at || colon >= end) throw new ResponseSyntaxError('field line without a name')
    if (kinds.length === maxLines) throw new ResponseSyntaxError('too many field lines')
    const name = text.slice(at, colon)
    const kind = headerKind(name)
    // Also refuses folded lines: they begin with white space.
    if (kind === HeaderKind.invalid) throw new ResponseSyntaxError('bad field name')
    let from = colon + 1
    let to = end
    while (from < to && isBlank(text.charCodeAt(from))) from++
    while (to > from && isBlank(text.charCodeAt(to - 1))) to--
    lines.push(name, text.slice(from, to))
    kinds.push(kind)
    at = end + 2
  }
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09
}
