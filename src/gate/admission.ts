/**
 * Admission: before routing, refuses requests that are ambiguous, too large or of a kind that is not served.
 * In: a request head that Node's parser accepted. Out: the facts that later stages need, or a refusal. Ambiguous are a
 * second `Host`, two lengths, a name that folds to a framing header (RFC 9112, sections 3.2, 6.3 and 11.2).
 */
import type { IncomingMessage } from 'node:http'
import { isIPv6 } from 'node:net'
import { ERRORS, type PublicError } from '../errors.ts'
import {
  type ConnectionOptions,
  HEADER_RULES,
  type HeaderKind,
  headerKind,
  headerValues,
  namesFramingOrIdentity,
  parseConnection,
} from '../http/headers.ts'
import { isRequestId } from '../http/request-ids.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import { failed, type Result } from '../values/result.ts'

export type RequestHead = Readonly<
  Pick<IncomingMessage, 'method' | 'url' | 'httpVersionMajor' | 'httpVersionMinor' | 'rawHeaders'>
>

/** `malformed`: a token, in two `Authorization` lines. */
export type Admission = Result<Admitted, PublicError | 'malformed'>

type Refused = Exclude<Admission, { ok: true }>

const badRequest = failed(ERRORS.malformedRequest)
const tooLarge = failed(ERRORS.headersTooLarge)
const badExpectation = failed(ERRORS.expectationFailed)
const twoAuthorizations = failed('malformed')

export function admit(head: RequestHead, maxHeaderLines: number): Admission {
  const { method, httpVersionMajor, rawHeaders } = head
  // TRACE would echo the identity headers to the client (RFC 9110, section 9.3.8). Node's parser also accepts HTTP/0.9
  // and HTTP/2.0, and frames their responses differently.
  if (method === 'CONNECT' || method === 'TRACE' || httpVersionMajor !== 1) return badRequest
  if (rawHeaders.length > 2 * maxHeaderLines) return tooLarge
  const request = new AdmittedRequest(head)
  return request.readLines() ?? request.readWhole(head.url) ?? { ok: true, value: request }
}

export type Admitted = Readonly<Omit<AdmittedRequest, 'readLines' | 'readWhole'>>

/** The object that later stages read is filled line by line: no hot request needs another. */
class AdmittedRequest {
  readonly method: string
  /** In origin form. */
  target = ''
  /** The target's bytes before `?`: routing uses nothing else. */
  path = ''
  /** Absent only in an HTTP/1.0 request. */
  host: string | undefined
  readonly rawHeaders: readonly string[]
  /** `kinds[i]` is that of the name `rawHeaders[2 * i]`. */
  readonly kinds: HeaderKind[] = []
  /** A header names a second path, or another method. */
  namesOtherRequest = false
  authorization: string | undefined
  hasBody = false
  isChunked = false
  expectsContinue = false
  offersUpgrade = false
  /** An unambiguous WebSocket handshake (RFC 6455, section 4.1). */
  isWebSocket = false
  /** A CORS preflight (Fetch standard). */
  isPreflight = false
  /** The client's, if it sent exactly one that is valid. */
  requestId: string | undefined
  connectionOptions: ConnectionOptions | undefined
  readonly #isHttp10: boolean
  #authorizations = 0
  #contentLength: string | undefined
  #connection: string | undefined
  #upgrade: string | undefined

  constructor({ method = '', httpVersionMinor, rawHeaders }: RequestHead) {
    this.method = method
    this.rawHeaders = rawHeaders
    this.#isHttp10 = httpVersionMinor === 0
  }

  readLines(): Refused | undefined {
    const { rawHeaders, kinds } = this
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const kind = headerKind(rawHeaders[at] as string)
      kinds.push(kind)
      const refused = this.#readLine(kind, rawHeaders[at + 1] as string)
      if (refused !== undefined) return refused
    }
    return undefined
  }

  #readLine(kind: HeaderKind, value: string): Refused | undefined {
    switch (kind) {
      case 'host':
        if (this.host !== undefined || !isHost(value)) return badRequest
        this.host = value
        break
      case 'contentLength':
        if (this.#contentLength !== undefined || !CONTENT_LENGTH.test(value)) return badRequest
        this.#contentLength = value
        break
      case 'transferEncoding':
        // Parsers disagree on lists of codings. HTTP/1.0 has no chunks (RFC 9112, section 6.1).
        if (this.isChunked || this.#isHttp10 || value.toLowerCase() !== 'chunked') return badRequest
        this.isChunked = true
        break
      case 'authorization':
        this.#authorizations++
        this.authorization = value
        break
      case 'connection':
        this.#connection = joined(this.#connection, value)
        break
      case 'upgrade':
        this.#upgrade = joined(this.#upgrade, value)
        break
      case 'expect':
        if (this.#isHttp10) break
        if (value.toLowerCase() !== '100-continue') return badExpectation
        this.expectsContinue = true
        break
      case 'requestId':
        this.requestId = joined(this.requestId, value)
        break
      case 'secondPath':
      case 'override':
        this.namesOtherRequest = true
        break
      default:
        if (HEADER_RULES[kind].request === 'refuse') return badRequest
    }
    return undefined
  }

  /** Reads and checks what depends on several lines. */
  readWhole(url = ''): Refused | undefined {
    if (this.isChunked && this.#contentLength !== undefined) return badRequest
    if (this.#connection !== undefined) {
      this.connectionOptions = parseConnection(this.#connection)
      if (namesFramingOrIdentity(this.connectionOptions)) return badRequest
    }
    if (this.host === undefined && !this.#isHttp10) return badRequest
    const target = originForm(url, this.host)
    if (target === undefined) return badRequest
    this.target = target
    this.path = pathOf(target)
    if (!isRequestId(this.requestId)) this.requestId = undefined
    this.hasBody = this.isChunked || (this.#contentLength !== undefined && this.#contentLength !== '0')
    this.offersUpgrade = this.#upgrade !== undefined && this.connectionOptions?.has('upgrade') === true
    if (this.offersUpgrade && this.#upgrade?.toLowerCase() === 'websocket')
      this.isWebSocket = this.method === 'GET' && !this.hasBody && !this.#isHttp10
    if (this.method === 'OPTIONS')
      this.isPreflight = PREFLIGHT.every((name) => headerValues(this.rawHeaders, name).length > 0)
    return this.#authorizations > 1 ? twoAuthorizations : undefined
  }
}

const PREFLIGHT = ['origin', 'access-control-request-method']

/** Repeated lines are one list (RFC 9110, section 5.3). */
function joined(before: string | undefined, value: string): string {
  return before === undefined ? value : `${before},${value}`
}

/** A canonical decimal number that a double represents exactly. */
const CONTENT_LENGTH = /^(?:0|[1-9][0-9]{0,14})$/

/** A registered name (RFC 3986, section 3.2.2) without the comma, which separates lists; or an IPv6 address. */
const HOST = /^(?:[\w.~!$&'()*+;=%-]+|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{0,5}))?$/

/** Whether a `Host` value is one host and at most one port, without userinfo, lists or a zone index. */
function isHost(value: string): boolean {
  const match = HOST.exec(value)
  if (match === null) return false
  const [, ipv6, port = 0] = match
  return (ipv6 === undefined || isIPv6(ipv6)) && Number(port) <= 65535
}
