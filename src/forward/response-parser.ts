/**
 * Reads HTTP/1.1 responses from an upstream's bytes.
 *
 * In: chunks as they come from the socket. Out: calls on a sink: informational heads, the head, body bytes,
 * the end with its trailers. It is stricter than a client need be, because what we misread another client gets:
 * anything on which two parsers could differ (two lengths, a length beside chunks, bare line feeds, folded
 * lines, unknown codings) is a fault (RFC 9112, sections 2.2, 5.2, 6.3 and 7.1).
 *
 * The parser does not outlive one response: what stands behind its end is nobody's answer.
 *
 * @module
 */
import { HeaderKind, headerKind } from '../gate/header-names.ts'

/** A response head. */
export interface ResponseHead {
  readonly status: number
  readonly reason: string
  /** Names and values alternating, as they stood on the wire, decoded as Latin-1. */
  readonly rawHeaders: readonly string[]
  readonly framing: Framing
  /** Bytes of the body, where the framing is `length`. */
  readonly contentLength: number
  /** Whether the connection can carry another request after this response. */
  readonly keepAlive: boolean
  /** Seconds for which the upstream promises to keep the connection (`Keep-Alive: timeout`). */
  readonly keepAliveSeconds: number | undefined
}

/** How the end of a body is told. */
export type Framing = 'none' | 'length' | 'chunked' | 'close'

/** Who is told what was read. */
export interface ResponseSink {
  /** A 1xx head other than 101. */
  onInformational(head: ResponseHead): void
  onHead(head: ResponseHead): void
  /**
   * Bytes of the body; `last` when they are known to be its end, so that one write can carry both. The memory of the
   * chunk is read into again after the call, unless it is held.
   */
  onBody(chunk: Buffer, last: boolean): void
  /** The response is whole. Not called before all of its bytes were. */
  onEnd(rawTrailers: readonly string[]): void
}

/** What an upstream sent cannot be understood. The message names the rule, never the bytes. */
export class ResponseFault extends Error {
  override readonly name = 'ResponseFault'
}

/** The bounds of a response head. */
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
/** A chunk-size line carries extensions that nobody uses; a long one is an attack on our memory. */
const MAX_CHUNK_LINE = 256
/** Informational responses are not progress: an upstream may not send them for ever. */
const MAX_INFORMATIONAL = 100

/** Reads one response. */
export class ResponseParser {
  #state: State = State.head
  #kept: Buffer = EMPTY
  #scanned = 0
  #left = 0
  #informational = 0
  #head: ResponseHead | undefined
  readonly #sink: ResponseSink
  readonly #isHead: boolean
  readonly #limits: ResponseLimits
  readonly #mayUpgrade: boolean
  #upgraded: ResponseHead | undefined

  /**
   * @param sink - who is told what was read
   * @param isHead - the request was HEAD: the head is the whole response whatever it says
   * @param limits - bounds of the head and of the trailers
   * @param mayUpgrade - the request asked for another protocol: 101 is an answer to it
   */
  constructor(sink: ResponseSink, isHead: boolean, limits: ResponseLimits, mayUpgrade = false) {
    this.#sink = sink
    this.#isHead = isHead
    this.#limits = limits
    this.#mayUpgrade = mayUpgrade
  }

  /** Whether the response is whole. */
  get done(): boolean {
    return this.#state === State.done
  }

  /** The head of a 101 that was asked for: what stands behind it is another protocol. */
  get upgraded(): ResponseHead | undefined {
    return this.#upgraded
  }

  /** Whether the connection can carry another request after this response. */
  get keepAlive(): boolean {
    return this.#head?.keepAlive ?? false
  }

  /** Seconds for which the upstream promises to keep the connection (`Keep-Alive: timeout`). */
  get keepAliveSeconds(): number | undefined {
    return this.#head?.keepAliveSeconds
  }

  /**
   * Takes the next bytes.
   *
   * @returns how many bytes of the chunk belong to this response: fewer than it holds only behind its end
   * @throws ResponseFault when they are no response; the connection can then not be used for anything
   */
  push(chunk: Buffer): number {
    let data = chunk
    const before = this.#kept.length
    if (before > 0) {
      data = Buffer.concat([this.#kept, chunk])
      this.#kept = EMPTY
    }
    let at = 0
    while (at < data.length && this.#state !== State.done) {
      const next = this.#step(data, at)
      if (next < 0) {
        this.#kept = Buffer.from(data.subarray(at)) // a copy: at most a head, and seldom
        return chunk.length
      }
      at = next
    }
    return at - before
  }

  /** The upstream closed cleanly. Returns whether that ended the body, rather than cut it. */
  close(): boolean {
    if (this.#state !== State.close) return false
    this.#finish(NO_LINES)
    return true
  }

  /** Reads one element at `at`; returns where the next begins, or -1 when more bytes are needed. */
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
        return this.#readChunkEnd(data, at)
      case State.trailers:
        return this.#readTrailers(data, at)
      default:
        this.#sink.onBody(at === 0 ? data : data.subarray(at), false)
        return data.length
    }
  }

  #readHead(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n\r\n', Math.max(at, at + this.#scanned - 3), 'latin1')
    if (end < 0) {
      const size = data.length - at
      // What is not there yet is a part of the empty line, at the best.
      if (size > this.#limits.headerBytes + 3) throw new ResponseFault('response head too large')
      // Bytes that cannot be a response are told at once: an SSH server waits for us to speak.
      if (!data.toString('latin1', at, at + 5).startsWith('HTTP/'.slice(0, size)))
        throw new ResponseFault('no HTTP response')
      rejectBareLineFeed(data, at + this.#scanned)
      this.#scanned = size
      return -1
    }
    this.#scanned = 0
    if (end - at > this.#limits.headerBytes) throw new ResponseFault('response head too large')
    const head = parseHead(data.toString('latin1', at, end), this.#isHead, this.#limits.headerLines)
    if (head.status === 101) {
      if (!this.#mayUpgrade) throw new ResponseFault('unasked switch of protocols')
      this.#upgraded = head
      this.#state = State.done
      return end + 4
    }
    if (head.status < 200) {
      if (++this.#informational > MAX_INFORMATIONAL)
        throw new ResponseFault('too many informational responses')
      this.#sink.onInformational(head)
      return end + 4
    }
    this.#left = head.contentLength
    this.#head = head
    this.#sink.onHead(head)
    if (head.framing === 'none' || (head.framing === 'length' && head.contentLength === 0))
      this.#finish(NO_LINES)
    else if (head.framing === 'length') this.#state = State.length
    else this.#state = head.framing === 'chunked' ? State.chunkSize : State.close
    return end + 4
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
    const end = data.indexOf('\r\n', at, 'latin1')
    if (end < 0 ? data.length - at > MAX_CHUNK_LINE + 1 : end - at > MAX_CHUNK_LINE)
      throw new ResponseFault('chunk line too long')
    if (end < 0) return needMore(data, at)
    this.#left = chunkSize(data.toString('latin1', at, end))
    this.#state = this.#left === 0 ? State.trailers : State.chunkData
    return end + 2
  }

  #readChunkEnd(data: Buffer, at: number): number {
    if (data[at] !== 0x0d) throw new ResponseFault('chunk longer than its size')
    if (at + 1 === data.length) return -1
    if (data[at + 1] !== 0x0a) throw new ResponseFault('chunk longer than its size')
    this.#state = State.chunkSize
    return at + 2
  }

  #readTrailers(data: Buffer, at: number): number {
    if (data[at] === 0x0d) {
      if (at + 1 === data.length) return -1
      if (data[at + 1] !== 0x0a) throw new ResponseFault('bad trailer section')
      this.#finish(NO_LINES)
      return at + 2
    }
    const end = data.indexOf('\r\n\r\n', at, 'latin1')
    if ((end < 0 ? data.length - 3 : end) - at > this.#limits.headerBytes)
      throw new ResponseFault('trailers too large')
    if (end < 0) return needMore(data, at)
    this.#finish(parseLines(data.toString('latin1', at, end), 0, this.#limits.headerLines))
    return end + 4
  }

  #finish(rawTrailers: readonly string[]): void {
    this.#state = State.done
    this.#sink.onEnd(rawTrailers)
  }
}

/** Says that more bytes are needed, unless those from `at` on can only be a mistake. */
function needMore(data: Buffer, at: number): -1 {
  rejectBareLineFeed(data, at)
  return -1
}

/** Some parsers end a line at a line feed alone. Ours would wait for an end that has come already for others. */
function rejectBareLineFeed(data: Buffer, from: number): void {
  for (let at = data.indexOf(0x0a, from); at >= 0; at = data.indexOf(0x0a, at + 1)) {
    if (data[at - 1] !== 0x0d) throw new ResponseFault('bare line feed')
  }
}

/** Parses a head without its empty line. */
function parseHead(text: string, isHead: boolean, maxLines: number): ResponseHead {
  const lineEnd = text.indexOf('\r\n')
  const statusLine = lineEnd < 0 ? text : text.slice(0, lineEnd)
  const http10 = statusLine.startsWith('HTTP/1.0 ')
  const status = threeDigits(statusLine, 9)
  if ((!http10 && !statusLine.startsWith('HTTP/1.1 ')) || status < 100)
    throw new ResponseFault('bad status line')
  // The space stands there even where no reason follows it (RFC 9112, section 4).
  if (statusLine.charCodeAt(12) !== 0x20) throw new ResponseFault('bad status line')
  const reason = statusLine.slice(13)
  if (!isFieldValue(reason)) throw new ResponseFault('bad status line')
  const rawHeaders = lineEnd < 0 ? NO_LINES : parseLines(text, lineEnd + 2, maxLines)

  let length = -1
  let chunked = false
  let close = http10
  let keepAliveSeconds: number | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    const value = rawHeaders[at + 1] as string
    switch (headerKind(name)) {
      case HeaderKind.contentLength:
        if (length >= 0) throw new ResponseFault('two lengths')
        length = decimal(value)
        break
      case HeaderKind.transferEncoding:
        if (chunked || http10 || value.toLowerCase() !== 'chunked')
          throw new ResponseFault('bad transfer coding')
        chunked = true
        break
      case HeaderKind.connection:
        if (/(?:^|,)\s*close\s*(?:,|$)/i.test(value)) close = true
        break
      case HeaderKind.hopByHop:
        if (name.toLowerCase() === 'keep-alive') keepAliveSeconds = promisedSeconds(value) ?? keepAliveSeconds
        break
    }
  }
  const noBody = isHead || status < 200 || status === 204 || status === 304
  // On a response that has no body the two describe what a GET would bring; elsewhere they contradict each other.
  if (chunked && length >= 0 && !noBody) throw new ResponseFault('a length beside chunks')
  let framing: Framing = 'close'
  if (noBody) framing = 'none'
  else if (chunked) framing = 'chunked'
  else if (length >= 0) framing = 'length'
  return {
    status,
    reason,
    rawHeaders,
    framing,
    contentLength: framing === 'length' ? length : 0,
    keepAlive: !close && framing !== 'close',
    keepAliveSeconds,
  }
}

/** Splits field lines from `start` on into names and values alternating. */
function parseLines(text: string, start: number, maxLines: number): string[] {
  const lines: string[] = []
  for (let at = start; at < text.length; ) {
    let end = text.indexOf('\r\n', at)
    if (end < 0) end = text.length
    const colon = text.indexOf(':', at)
    if (colon <= at || colon >= end) throw new ResponseFault('field line without a name')
    if (lines.length === 2 * maxLines) throw new ResponseFault('too many field lines')
    const name = text.slice(at, colon)
    const value = trimField(text, colon + 1, end)
    // A folded line begins with white space, which no name may hold.
    if (!isToken(name) || !isFieldValue(value)) throw new ResponseFault('bad field line')
    lines.push(name, value)
    at = end + 2
  }
  return lines
}

/** The value between `start` and `end` without spaces and tabs at its ends. */
function trimField(text: string, start: number, end: number): string {
  let from = start
  let to = end
  while (from < to && isBlank(text.charCodeAt(from))) from++
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--
  return text.slice(from, to)
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09
}

/** `tchar` of RFC 9110, section 5.6.2. */
const TOKEN = new Uint8Array(256)
for (const character of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  TOKEN[character.charCodeAt(0)] = 1
}

function isToken(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (TOKEN[text.charCodeAt(at)] !== 1) return false
  return true
}

/** Field values and reason phrases: anything but controls; the tab is white space. */
function isFieldValue(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if ((code < 0x20 && code !== 0x09) || code === 0x7f) return false
  }
  return true
}

function threeDigits(text: string, at: number): number {
  let number = 0
  for (let digit = at; digit < at + 3; digit++) {
    const code = text.charCodeAt(digit)
    if (!(code >= 0x30 && code <= 0x39)) return -1
    number = number * 10 + code - 0x30
  }
  return number
}

function decimal(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw new ResponseFault('bad length')
  return Number(text)
}

/** The size in a chunk line; its extensions are skipped. White space between the two is read in two ways. */
function chunkSize(line: string): number {
  const digits = /^([0-9A-Fa-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(line)
  if (digits === null) throw new ResponseFault('bad chunk size')
  return Number.parseInt(digits[1] as string, 16)
}

function promisedSeconds(value: string): number | undefined {
  const timeout = /(?:^|[,\s])timeout=([0-9]{1,6})(?:$|[,\s])/i.exec(value)
  return timeout === null ? undefined : Number(timeout[1])
}
