/**
 * Parses the HTTP/1.1 responses of one upstream connection (RFC 9112).
 * In: chunks as the socket reads them. Out: the parts of the response that have arrived.
 * Two different lengths, unknown codings and bare line feeds are errors.
 * The RFC is less strict, but bytes of a misread response could reach another client.
 */
import { readFraming } from '../http/framing.ts'
import { HeaderLines } from '../http/headers.ts'
import type { ReceivedBody } from './buffers.ts'
import type { UpstreamSettings } from './contract.ts'

type HeadLimits = Pick<UpstreamSettings['limits'], 'headerBytes' | 'headerLines'>

class BadResponse extends Error {}

export interface UpstreamHead {
  readonly status: number
  readonly statusText: string
  readonly lines: HeaderLines
  /**
   * What ends the body (RFC 9112, section 6.3). `none`: there is no body. `close`: the end of the connection.
   */
  readonly framing: 'none' | 'length' | 'chunked' | 'close'
  readonly contentLength: number | undefined
  /**
   * How long the upstream keeps the connection open after this response. 0: the connection cannot be reused.
   */
  readonly keepAliveSeconds: number
}

type State = 'head' | 'body' | 'chunkSize' | 'chunkData' | 'chunkEnd' | 'trailers' | 'done'

const CARRIAGE_RETURN = 0x0d
const LINE_FEED = 0x0a
const NO_BYTES = Buffer.alloc(0)
/** Only chunk extensions, which no server uses, make a chunk-size line longer. */
const MAX_CHUNK_LINE = 256
/**
 * For each request. Later ones are dropped.
 * They are no progress: an upstream that sends nothing else is given up in time.
 */
const MAX_INFORMATIONAL = 32
/** The assumed idle time of an upstream that does not announce one (`Keep-Alive: timeout`). */
const KEEP_ALIVE_SECONDS = 5
const KEEP_ALIVE_TIMEOUT = /(?:^|[,\s])timeout=([0-9]{1,6})(?:$|[,\s])/i

/**
 * The parts of a response that have arrived:
 * what a receiver may use of the parser, until its `onRead` returns.
 */
export interface PartialResponse {
  /** The head of the final response, or of a 101. */
  readonly head: UpstreamHead | undefined
  readonly body: ReceivedBody
  readonly isDone: boolean
  /** Empty until the response is done. */
  readonly rawTrailers: readonly string[]
  /** Takes the informational responses (1xx) that have arrived, without 100 and 101. */
  takeInformational(): readonly UpstreamHead[]
}

export class ResponseParser implements PartialResponse {
  readonly #limits: HeadLimits
  #isHeadRequest = false
  #isWebSocket = false
  #state: State = 'done'
  #partial = NO_BYTES
  #left = 0
  /** Of the current request. */
  #informationalCount = 0
  #informational: UpstreamHead[] = []
  readonly body: ReceivedBody
  head: UpstreamHead | undefined
  rawTrailers: readonly string[] = []
  /**
   * Set if the bytes are not an HTTP/1.1 response: a fixed text for the access log.
   * The connection must then be closed.
   */
  syntaxError: string | undefined

  constructor(limits: HeadLimits, body: ReceivedBody) {
    this.#limits = limits
    this.body = body
  }

  /**
   * `isWebSocket`: the request is a WebSocket handshake. A 101 in response to any other request is an error.
   */
  start(isHeadRequest: boolean, isWebSocket: boolean): void {
    this.#isHeadRequest = isHeadRequest
    this.#isWebSocket = isWebSocket
    this.#state = 'head'
    this.#partial = NO_BYTES
    this.#informationalCount = 0
    this.#informational = []
    this.body.clear()
    this.head = undefined
    this.rawTrailers = []
  }

  get isDone(): boolean {
    return this.#state === 'done'
  }

  takeInformational(): readonly UpstreamHead[] {
    return this.#informational.splice(0)
  }

  /** Returns whether all bytes belong to this response. */
  push(chunk: Buffer): boolean {
    const data = this.#partial.length > 0 ? Buffer.concat([this.#partial, chunk]) : chunk
    this.#partial = NO_BYTES
    try {
      let at = 0
      while (at < data.length && this.#state !== 'done') {
        const next = this.#step(data, at)
        if (next < 0) {
          this.#partial = Buffer.from(data.subarray(at)) // a copy, because the chunk's memory is reused
          return true
        }
        at = next
      }
      return at === data.length
    } catch (error) {
      if (!(error instanceof BadResponse)) {
        throw error
      }
      this.syntaxError = error.message
      return false
    }
  }

  /** Must be called at a clean end of the connection, which completes a close-delimited body. */
  close(): void {
    if (this.head?.framing === 'close') {
      this.#state = 'done'
    }
  }

  /** Returns the offset of the next element, or -1 if bytes are missing. */
  #step(data: Buffer, at: number): number {
    switch (this.#state) {
      case 'head':
        return this.#readHead(data, at)
      case 'chunkSize':
        return this.#readChunkSize(data, at)
      case 'chunkEnd':
        return this.#readChunkEnd(data, at)
      case 'trailers':
        return this.#readTrailers(data, at)
      default:
        return this.#readBody(data, at)
    }
  }

  #readHead(data: Buffer, at: number): number {
    const end = this.#endOfLines(data, at)
    if (end < 0) {
      checkStart(data.toString('latin1', at))
      return -1
    }
    const text = data.toString('latin1', at, end + 2)
    const head = parseHead(text, this.#isHeadRequest, this.#limits.headerLines)
    if (head.status < 200 && head.status !== 101) {
      this.#onInformational(head)
    } else {
      this.#onFinalHead(head)
    }
    return end + 4
  }

  #onInformational(head: UpstreamHead): void {
    if (head.status !== 100 && this.#informationalCount < MAX_INFORMATIONAL) {
      this.#informationalCount++
      this.#informational.push(head)
    }
  }

  /** The head of the final response, or of a 101. */
  #onFinalHead(head: UpstreamHead): void {
    const { status, framing, contentLength = 0 } = head
    if (status === 101 && !(this.#isWebSocket && switchesToWebSocket(head))) {
      throw new BadResponse('101 without an upgrade')
    }
    this.head = head
    switch (framing) {
      case 'none':
        this.#state = 'done'
        break
      case 'length':
        this.#left = contentLength
        this.#state = contentLength === 0 ? 'done' : 'body'
        break
      case 'chunked':
        this.#state = 'chunkSize'
        break
      case 'close':
        this.#left = Number.POSITIVE_INFINITY
        this.#state = 'body'
        break
    }
  }

  /** Returns the offset of the CRLF CRLF that ends a head or trailers, or -1 if it has not arrived. */
  #endOfLines(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 3 : end) - at > this.#limits.headerBytes) {
      throw new BadResponse('head or trailers too large')
    }
    return end
  }

  #readBody(data: Buffer, at: number): number {
    const end = Math.min(data.length, at + this.#left)
    this.#left -= end - at
    this.body.add(data.subarray(at, end))
    if (this.#left === 0) {
      this.#state = this.#state === 'body' ? 'done' : 'chunkEnd'
    }
    return end
  }

  /** A chunk ends with a CRLF. */
  #readChunkEnd(data: Buffer, at: number): number {
    const hasLineFeed = at + 1 < data.length
    if (data[at] !== CARRIAGE_RETURN || (hasLineFeed && data[at + 1] !== LINE_FEED)) {
      throw new BadResponse('chunk longer than its size')
    }
    if (!hasLineFeed) {
      return -1
    }
    this.#state = 'chunkSize'
    return at + 2
  }

  #readChunkSize(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 1 : end) - at > MAX_CHUNK_LINE) {
      throw new BadResponse('chunk line too long')
    }
    const line = data.toString('latin1', at, end < 0 ? data.length : end)
    const [, digits, carriageReturn] = CHUNK_LINE.exec(line) ?? []
    if (digits === undefined || (end >= 0 && carriageReturn !== '')) {
      throw new BadResponse('bad chunk size')
    }
    if (end < 0) {
      return -1
    }
    this.#left = Number.parseInt(digits, 16)
    this.#state = this.#left === 0 ? 'trailers' : 'chunkData'
    return this.#left === 0 ? end : end + 2
  }

  /**
   * `at`: the CRLF of the last chunk-size line.
   * Without trailers, this CRLF and the empty line are the CRLF CRLF.
   */
  #readTrailers(data: Buffer, at: number): number {
    const end = this.#endOfLines(data, at)
    if (end < 0) {
      return -1
    }
    const text = data.toString('latin1', at + 2, end + 2)
    this.rawTrailers = parseFieldLines(text, 0, this.#limits.headerLines).raw
    this.#state = 'done'
    return end + 4
  }
}

/**
 * A chunk size, and extensions, which are ignored.
 * Blanks may stand between them, and behind the size (RFC 9112, section 7.1.1).
 */
const CHUNK_LINE = /^([0-9A-Fa-f]{1,12})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?(\r?)$/
/** Many servers leave out the space after the status code if there is no reason phrase. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: (.*))?\r\n/
/**
 * Lines without control characters except the tab. A carriage return or a line feed stands only in a CRLF.
 */
const LINES = /^(?:[\t\x20-\x7e\x80-\xff]*\r\n)*$/

/** Fails on the first bytes that cannot be HTTP: an SSH server, for example, sends its banner and waits. */
function checkStart(text: string): void {
  if (!text.startsWith('HTTP/'.slice(0, text.length)) || /[^\r]\n/.test(text)) {
    throw new BadResponse('no HTTP response')
  }
}

function parseHead(text: string, isHeadRequest: boolean, maxLines: number): UpstreamHead {
  const [statusLine = '', minorVersion, digits, statusText = ''] = STATUS_LINE.exec(text) ?? []
  if (digits === undefined) {
    throw new BadResponse('bad status line')
  }
  const isHttp10 = minorVersion === '0'
  const status = Number(digits)
  const received = parseFieldLines(text, statusLine.length, maxLines)
  const read = readFraming(received, { isHttp10, sender: 'upstream' })
  if (!read.ok) {
    throw new BadResponse(read.error === 'Content-Length' ? 'bad length' : 'bad transfer coding')
  }
  const { isChunked } = read.value
  const lines = withOneLength(received, read.value.contentLength)
  const contentLength = read.value.contentLength === undefined ? undefined : Number(read.value.contentLength)
  const framing = framingOf(status, isHeadRequest, isChunked, contentLength)
  // A 204 has no body. If its head announces one, the body may still follow, so the connection is not reused.
  const isFollowed = status === 204 && (isChunked || (contentLength ?? 0) > 0)
  const isLast = isHttp10 || isFollowed || framing === 'close' || lines.connectionOptions?.has('close')
  const keepAliveSeconds = isLast ? 0 : announcedKeepAliveSeconds(lines)
  return { status, statusText, lines, framing, contentLength, keepAliveSeconds }
}

/** The client receives one length, even if the upstream has sent the same one twice. */
function withOneLength(lines: HeaderLines, contentLength: string | undefined): HeaderLines {
  if (contentLength === undefined || lines.joined('contentLength') === contentLength) {
    return lines
  }
  const raw: string[] = []
  let hasLength = false
  for (const [line, kind] of lines.kinds.entries()) {
    if (kind !== 'contentLength') {
      raw.push(lines.name(line), lines.value(line))
    } else if (!hasLength) {
      raw.push(lines.name(line), contentLength)
      hasLength = true
    }
  }
  return new HeaderLines(raw)
}

function announcedKeepAliveSeconds(lines: HeaderLines): number {
  const announced = KEEP_ALIVE_TIMEOUT.exec(lines.joined('keepAlive') ?? '')?.[1]
  return announced === undefined ? KEEP_ALIVE_SECONDS : Number(announced)
}

function framingOf(status: number, isHeadRequest: boolean, isChunked: boolean, contentLength?: number) {
  if (status === 101) {
    return 'close' // a tunnel follows, even if the head has a length or a coding
  }
  // These responses have no body. Their length and coding describe the body that a GET would receive.
  if (isHeadRequest || status < 200 || status === 204 || status === 304) {
    return 'none'
  }
  if (isChunked && contentLength !== undefined) {
    throw new BadResponse('a length beside chunks')
  }
  if (isChunked) {
    return 'chunked'
  }
  return contentLength === undefined ? 'close' : 'length'
}

/** Parses the field lines from `start` on. `text`: a head or trailers, without the empty line. */
function parseFieldLines(text: string, start: number, maxLines: number): HeaderLines {
  if (!LINES.test(text)) {
    throw new BadResponse('control character in the head or the trailers')
  }
  const raw: string[] = []
  let at = start
  while (at < text.length) {
    const end = text.indexOf('\r\n', at)
    const colon = text.indexOf(':', at)
    if (colon <= at || colon >= end) {
      throw new BadResponse('field line without a name')
    }
    if (raw.length === 2 * maxLines) {
      throw new BadResponse('too many field lines')
    }
    raw.push(text.slice(at, colon), withoutBlanks(text, colon + 1, end))
    at = end + 2
  }
  const lines = new HeaderLines(raw)
  // A line that begins with white space has no valid name either: it would continue the line before it.
  if (lines.kinds.includes('invalid')) {
    throw new BadResponse('bad field name')
  }
  return lines
}

/** Returns the text between two offsets, without the blanks around it. */
function withoutBlanks(text: string, start: number, end: number): string {
  let from = start
  let to = end
  while (from < to && isBlank(text.charCodeAt(from))) {
    from++
  }
  while (to > from && isBlank(text.charCodeAt(to - 1))) {
    to--
  }
  return text.slice(from, to)
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09

function switchesToWebSocket({ lines }: UpstreamHead): boolean {
  const protocols = lines.values('upgrade').map((protocol) => protocol.toLowerCase())
  return protocols.includes('websocket') && lines.connectionOptions?.has('upgrade') === true
}
