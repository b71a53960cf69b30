/**
 * Reads the requests of one client connection from its bytes.
 *
 * In: chunks as they come from the socket. Out: calls on a sink: a head, the bytes of its body, the end with its
 * trailers; and then the next head. The grammar is RFC 9112's in its strict reading: one space between the parts of a
 * request line, CRLF at the end of every line, no folding, no name or value with a control in it. What a head means,
 * where its body ends above all, is not decided here: the sink says it, for each head.
 *
 * @module
 */
import { METHODS as NODE_METHODS } from 'node:http'
import { ownText } from '../own-text.ts'
import { checkFieldLines, NO_LINES, parseFieldLines, rejectBareLineFeed } from './field-lines.ts'
import { MessageFault } from './message-fault.ts'
import { type MessageLimits, MessageReader, type MessageSink } from './message-reader.ts'

/** A request head, as it stood on the wire, decoded as Latin-1. */
export interface RawRequestHead {
  readonly method: string
  /** The request target. */
  readonly url: string
  readonly httpVersion: '1.0' | '1.1'
  /** Names and values alternating. */
  readonly rawHeaders: readonly string[]
  /** Whether the very same list is given for the next head on the connection that has the same lines. */
  readonly isRemembered: boolean
}

/** What follows a request head. */
export interface RequestBody {
  readonly chunked: boolean
  /** Bytes, unless chunked. */
  readonly contentLength: number
}

/** Who is told what was read. */
export interface RequestSink extends MessageSink {
  /** A head. Says what follows; `undefined`: nothing that we could read, so that reading ends here. */
  onHead(head: RawRequestHead): RequestBody | undefined
}

/** Methods that HTTP knows. What upstreams make of others, such as `TRACK` or `get`, differs. */
const METHODS: ReadonlySet<string> = new Set(NODE_METHODS)

/** As many characters as the longest of them has, and a few. */
const MAX_METHOD = 24

/** Room for the method, the version and the separators of a request line. */
const REQUEST_LINE_BYTES = MAX_METHOD + ' HTTP/1.1\r\n '.length

/** Reads one request after the other. */
export class RequestReader extends MessageReader {
  readonly #requests: RequestSink
  /** Bytes of complete lines that have been looked at, of a head that is not whole. */
  #checked = 0
  /** Only the first half of an empty line has come. */
  #isBlank = false
  /** The field lines that came last. Most clients repeat theirs for as long as a connection lives. */
  #lastFields = ''
  #lastHeaders: readonly string[] = NO_LINES

  constructor(sink: RequestSink, limits: MessageLimits) {
    super(sink, limits)
    this.#requests = sink
  }

  /** Begins to read the next request. To be called when one is done. */
  next(): void {
    this.restart()
  }

  /** An empty line before a request is no beginning of one, and so half of it is none. */
  override get isWithin(): boolean {
    return super.isWithin && !this.#isBlank
  }

  protected override readHead(data: Buffer, start: number): number {
    let at = start
    // Some clients send an empty line behind a body (RFC 9112, section 2.2).
    while (data[at] === 0x0d && data[at + 1] === 0x0a) at += 2
    if (at > start) return at
    const end = data.indexOf('\r\n\r\n', at + Math.max(0, this.scanned - 3), 'latin1')
    // Exact bounds of the target and of the field lines are the gate's; this one is of what is kept to get there.
    // What is not there yet is a part of the empty line, at the best.
    const tooLarge = (end < 0 ? data.length - 3 : end) - at > 2 * this.limits.headerBytes + REQUEST_LINE_BYTES
    if (end < 0) {
      this.#checked = this.#checkLines(data, at)
      this.#isBlank = data[at] === 0x0d
      if (tooLarge) throw new MessageFault('request head too large', true)
      return -1
    }
    this.#checked = 0
    this.#isBlank = false
    if (tooLarge) throw new MessageFault('request head too large', true)
    const body = this.#requests.onHead(this.#parse(data.toString('latin1', at, end)))
    if (body === undefined) this.leave()
    else this.beginBody(body.chunked ? 'chunked' : 'length', body.contentLength)
    return end + 4
  }

  #parse(text: string): RawRequestHead {
    const lineEnd = text.indexOf('\r\n')
    if (lineEnd < 0) return requestHead(text, NO_LINES, false)
    const line = text.slice(0, lineEnd)
    const fields = text.slice(lineEnd + 2)
    if (fields === this.#lastFields) return requestHead(line, this.#lastHeaders, true)
    const isRemembered = fields.length <= MOST_REMEMBERED
    const kept = isRemembered ? ownText(fields) : fields // without the target, which may be long
    // As they came: white space around values is no way around the bound.
    if (fields.length + 2 > this.limits.headerBytes) throw new MessageFault('field lines too large', true)
    const rawHeaders = parseFieldLines(kept, 0, Number.POSITIVE_INFINITY)
    this.#lastFields = isRemembered ? kept : ''
    this.#lastHeaders = isRemembered ? rawHeaders : NO_LINES
    return requestHead(line, rawHeaders, isRemembered)
  }

  /**
   * Looks at the lines of a head that is not whole: whoever speaks another protocol waits for us to speak, and must be
   * told at once.
   *
   * @returns the bytes of complete lines
   */
  #checkLines(data: Buffer, at: number): number {
    let from = at + this.#checked
    if (from === at) {
      const end = data.indexOf('\r\n', at + Math.max(0, this.scanned - 1), 'latin1')
      if (end < 0) {
        if (!BEGINNING.test(data.toString('latin1', at, at + MAX_METHOD + 1)))
          throw new MessageFault('no HTTP request')
        rejectBareLineFeed(data, at + this.scanned)
        return 0
      }
      requestHead(data.toString('latin1', at, end), NO_LINES, false)
      from = end + 2
    }
    return checkFieldLines(data, from, at + this.scanned) - at
  }
}

/** What the first bytes of a request line can be. */
const BEGINNING = /^[!#$%&'*+.^_`|~\w-]{1,24}(?: |$)|^\r$/

/** Field lines of so many characters are remembered, so that many connections do not hold much. */
const MOST_REMEMBERED = 2048

/** A target is ASCII without spaces and controls; bytes beyond it are Latin-1 for one reader and UTF-8 for the next. */
const NOT_IN_TARGET = /[^\x21-\x7e]/

/** Parses `method SP request-target SP HTTP-version` (RFC 9112, section 3). */
function requestHead(line: string, rawHeaders: readonly string[], isRemembered: boolean): RawRequestHead {
  const space = line.indexOf(' ')
  const end = line.length - ' HTTP/1.1'.length
  const method = line.slice(0, Math.max(space, 0))
  if (!METHODS.has(method)) throw new MessageFault('bad method')
  const isCurrent = line.endsWith(' HTTP/1.1')
  if (!isCurrent && !line.endsWith(' HTTP/1.0')) throw new MessageFault('bad version')
  const url = line.slice(space + 1, end)
  if (url === '' || NOT_IN_TARGET.test(url)) throw new MessageFault('bad request target')
  return { method, url, httpVersion: isCurrent ? '1.1' : '1.0', rawHeaders, isRemembered }
}
