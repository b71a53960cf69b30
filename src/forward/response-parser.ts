/**
 * Reads HTTP/1.1 responses from an upstream's bytes.
 *
 * In: chunks as they come from the socket. Out: calls on a sink: informational heads, the head, body bytes,
 * the end with its trailers. It is stricter than a client need be, because what we misread another client gets:
 * anything on which two parsers could differ (two lengths, a length beside chunks, unknown codings) is a fault
 * (RFC 9112, section 6.3).
 *
 * The parser does not outlive one response: what stands behind its end is nobody's answer.
 *
 * @module
 */
import { HeaderKind, headerKind } from '../gate/header-names.ts'
import { isFieldValue, NO_LINES, parseFieldLines, rejectBareLineFeed } from '../http1/field-lines.ts'
import { MessageFault } from '../http1/message-fault.ts'
import { type Framing, type MessageLimits, MessageReader, type MessageSink } from '../http1/message-reader.ts'

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

/** Who is told what was read. */
export interface ResponseSink extends MessageSink {
  /** A 1xx head other than 101. */
  onInformational(head: ResponseHead): void
  onHead(head: ResponseHead): void
}

/** Informational responses are not progress: an upstream may not send them for ever. */
const MAX_INFORMATIONAL = 100

/** Reads one response. */
export class ResponseParser extends MessageReader {
  #informational = 0
  #head: ResponseHead | undefined
  readonly #responses: ResponseSink
  readonly #isHead: boolean
  readonly #mayUpgrade: boolean
  #upgraded: ResponseHead | undefined

  /**
   * @param sink - who is told what was read
   * @param isHead - the request was HEAD: the head is the whole response whatever it says
   * @param limits - bounds of the head and of the trailers
   * @param mayUpgrade - the request asked for another protocol: 101 is an answer to it
   */
  constructor(sink: ResponseSink, isHead: boolean, limits: MessageLimits, mayUpgrade = false) {
    super(sink, limits)
    this.#responses = sink
    this.#isHead = isHead
    this.#mayUpgrade = mayUpgrade
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

  protected override readHead(data: Buffer, at: number): number {
    const end = data.indexOf('\r\n\r\n', at + Math.max(0, this.scanned - 3), 'latin1')
    if (end < 0) {
      const size = data.length - at
      // What is not there yet is a part of the empty line, at the best.
      if (size > this.limits.headerBytes + 3) throw new MessageFault('response head too large')
      // Bytes that cannot be a response are told at once: an SSH server waits for us to speak.
      if (!data.toString('latin1', at, at + 5).startsWith('HTTP/'.slice(0, size)))
        throw new MessageFault('no HTTP response')
      rejectBareLineFeed(data, at + this.scanned)
      return -1
    }
    if (end - at > this.limits.headerBytes) throw new MessageFault('response head too large')
    const head = parseHead(data.toString('latin1', at, end), this.#isHead, this.limits.headerLines)
    if (head.status === 101) {
      if (!this.#mayUpgrade) throw new MessageFault('unasked switch of protocols')
      this.#upgraded = head
      this.leave()
      return end + 4
    }
    if (head.status < 200) {
      if (++this.#informational > MAX_INFORMATIONAL)
        throw new MessageFault('too many informational responses')
      this.#responses.onInformational(head)
      return end + 4
    }
    this.#head = head
    this.#responses.onHead(head)
    this.beginBody(head.framing, head.contentLength)
    return end + 4
  }
}

/** Parses a head without its empty line. */
function parseHead(text: string, isHead: boolean, maxLines: number): ResponseHead {
  const lineEnd = text.indexOf('\r\n')
  const statusLine = lineEnd < 0 ? text : text.slice(0, lineEnd)
  const http10 = statusLine.startsWith('HTTP/1.0 ')
  const status = threeDigits(statusLine, 9)
  if ((!http10 && !statusLine.startsWith('HTTP/1.1 ')) || status < 100)
    throw new MessageFault('bad status line')
  // The space stands there even where no reason follows it (RFC 9112, section 4).
  if (statusLine.charCodeAt(12) !== 0x20) throw new MessageFault('bad status line')
  const reason = statusLine.slice(13)
  if (!isFieldValue(reason)) throw new MessageFault('bad status line')
  const rawHeaders = lineEnd < 0 ? NO_LINES : parseFieldLines(text, lineEnd + 2, maxLines)

  let length = -1
  let chunked = false
  let close = http10
  let keepAliveSeconds: number | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    const value = rawHeaders[at + 1] as string
    switch (headerKind(name)) {
      case HeaderKind.contentLength:
        if (length >= 0) throw new MessageFault('two lengths')
        length = decimal(value)
        break
      case HeaderKind.transferEncoding:
        if (chunked || http10 || value.toLowerCase() !== 'chunked')
          throw new MessageFault('bad transfer coding')
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
  if (chunked && length >= 0 && !noBody) throw new MessageFault('a length beside chunks')
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
  if (!/^[0-9]{1,15}$/.test(text)) throw new MessageFault('bad length')
  return Number(text)
}

function promisedSeconds(value: string): number | undefined {
  const timeout = /(?:^|[,\s])timeout=([0-9]{1,6})(?:$|[,\s])/i.exec(value)
  return timeout === null ? undefined : Number(timeout[1])
}
