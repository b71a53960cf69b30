/**
 * Before routing, refuses requests that are ambiguous, too large or of an unsupported kind.
 * In: a request head that Node's parser accepted. Out: the facts that later stages need, or a refusal.
 * Two `Host` lines, two lengths or a name that folds to a framing header make a request ambiguous
 * (RFC 9112, sections 3.2, 6.3 and 11.2).
 */
import type { IncomingMessage } from 'node:http'
import { isIPv6 } from 'node:net'
import type { Config } from '../config/config.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import { HeaderLines, namesFramingOrIdentity, requestIdOf } from '../http/headers.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import { failed, ok, type Result } from '../values/result.ts'

export type RequestHead = Readonly<
  Pick<IncomingMessage, 'method' | 'url' | 'httpVersionMajor' | 'httpVersionMinor' | 'rawHeaders'>
>

export type Admission = Result<Admitted, PublicError>

type Refused = Exclude<Admission, { ok: true }>

const badRequest = failed(ERRORS.malformedRequest)
const tooLarge = failed(ERRORS.headersTooLarge)
const badExpectation = failed(ERRORS.expectationFailed)

export function admit(head: RequestHead, limits: Pick<Config['limits'], 'headerLines'>): Admission {
  const { method, httpVersionMajor, rawHeaders } = head
  // TRACE would echo the identity headers to the client (RFC 9110, section 9.3.8). Node's parser also accepts
  // HTTP/0.9 and HTTP/2.0, and frames their responses differently.
  if (method === 'CONNECT' || method === 'TRACE' || httpVersionMajor !== 1) return badRequest
  if (rawHeaders.length > 2 * limits.headerLines) return tooLarge
  const request = new AdmittedRequest(head)
  return request.readLines() ?? request.readWhole(head.url) ?? ok(request)
}

export type Admitted = Readonly<Omit<AdmittedRequest, 'readLines' | 'readWhole'>>

/** Filled line by line, then read by later stages: a request needs no second object. */
class AdmittedRequest {
  readonly method: string
  /** In origin form. */
  target = ''
  /** The target's bytes before `?`: routing uses nothing else. */
  path = ''
  /** Absent only in an HTTP/1.0 request. */
  host: string | undefined
  readonly lines: HeaderLines
  /** A header names a second path, or another method. */
  namesOtherRequest = false
  authorization: string | undefined
  hasTwoAuthorizations = false
  hasBody = false
  isChunked = false
  expectsContinue = false
  offersUpgrade = false
  /** An unambiguous WebSocket handshake (RFC 6455, section 4.1). */
  isWebSocket = false
  /** A CORS preflight (Fetch standard). */
  isPreflight = false
  /** The request id of the client, if it sent exactly one and this one is valid. */
  requestId: string | undefined
  readonly #isHttp10: boolean
  #contentLength: string | undefined

  constructor({ method = '', httpVersionMinor, rawHeaders }: RequestHead) {
    this.method = method
    this.lines = new HeaderLines(rawHeaders)
    this.#isHttp10 = httpVersionMinor === 0
  }

  readLines(): Refused | undefined {
    for (let line = 0; line < this.lines.kinds.length; line++) {
      const refused = this.#readLine(line)
      if (refused !== undefined) return refused
    }
    return undefined
  }

  #readLine(line: number): Refused | undefined {
    const value = this.lines.value(line)
    switch (this.lines.kinds[line]) {
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
        this.hasTwoAuthorizations = this.authorization !== undefined
        this.authorization = value
        break
      case 'expect':
        if (this.#isHttp10) break
        if (value.toLowerCase() !== '100-continue') return badExpectation
        this.expectsContinue = true
        break
      case 'secondPath':
      case 'otherRequest':
        this.namesOtherRequest = true
        break
      default:
        if (this.lines.rule(line).request === 'refuse') return badRequest
    }
    return undefined
  }

  /** Reads and checks what depends on several lines. */
  readWhole(url = ''): Refused | undefined {
    if (this.isChunked && this.#contentLength !== undefined) return badRequest
    const { connectionOptions } = this.lines
    if (connectionOptions !== undefined && namesFramingOrIdentity(connectionOptions)) return badRequest
    if (this.host === undefined && !this.#isHttp10) return badRequest
    const target = originForm(url, this.host)
    if (target === undefined) return badRequest
    this.target = target
    this.path = pathOf(target)
    this.requestId = requestIdOf(this.lines)
    this.hasBody = this.isChunked || (this.#contentLength !== undefined && this.#contentLength !== '0')
    const upgrade = connectionOptions?.has('upgrade') ? this.lines.joined('upgrade') : undefined
    this.offersUpgrade = upgrade !== undefined
    if (upgrade?.toLowerCase() === 'websocket')
      this.isWebSocket = this.method === 'GET' && !this.hasBody && !this.#isHttp10
    if (this.method === 'OPTIONS')
      this.isPreflight = PREFLIGHT.every((name) => this.lines.values(name).length > 0)
    return undefined
  }
}

const PREFLIGHT = ['origin', 'access-control-request-method']

/** A canonical decimal number that a double represents exactly. */
const CONTENT_LENGTH = /^(?:0|[1-9][0-9]{0,14})$/

/** A registered name (RFC 3986, section 3.2.2) without the comma, which separates lists, or an IPv6 address. */
const HOST = /^(?:[\w.~!$&'()*+;=%-]+|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{0,5}))?$/

/** Whether a `Host` value is one host and at most one port, without userinfo, lists or a zone index. */
function isHost(value: string): boolean {
  const match = HOST.exec(value)
  if (match === null) return false
  const [, ipv6, port = 0] = match
  return (ipv6 === undefined || isIPv6(ipv6)) && Number(port) <= 65535
}
