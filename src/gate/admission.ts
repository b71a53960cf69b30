/**
 * Before routing, refuses requests that are ambiguous, too large or of an unsupported kind.
 * In: a request head that Node's parser accepted.
 * Out: the facts that later stages need, or a refusal. Ambiguous are two `Host` lines, two lengths,
 * or a name that an upstream may take for a framing header (RFC 9112, 3.2, 6.3, 11.2).
 */
import type { IncomingMessage } from 'node:http'
import { ERRORS, type PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { Config } from '../config/config.ts'
import { type Framing, type FramingFault, readFraming } from '../http/framing.ts'
import { HeaderLines, namesFramingOrIdentity, requestIdOf } from '../http/headers.ts'
import { isHost } from '../http/hosts.ts'
import { originForm, pathOf, type RequestedAccess } from '../http/request-target.ts'

/** `cause`: the part of the head that is refused, for the access log. */
type AdmissionRefusal = Readonly<{ error: PublicError; cause: string }>

/** Routing reads only the path of the target. */
export interface AdmittedRequest extends RequestedAccess {
  /** A header names another method, or a second path. */
  readonly headersAddAccess: boolean
  readonly authorization: string | undefined
  readonly hasTwoAuthorizations: boolean
  readonly hasBody: boolean
  readonly isChunked: boolean
  readonly offersUpgrade: boolean
  /** An unambiguous WebSocket handshake (RFC 6455, section 4.1). */
  readonly isWebSocket: boolean
  /** A CORS preflight (Fetch standard). */
  readonly isPreflight: boolean
  /** The client's request id. Undefined unless the client sent exactly one id, and a valid one. */
  readonly requestId: string | undefined
}

type HeadPart = 'method' | 'url' | 'httpVersionMajor' | 'httpVersionMinor' | 'rawHeaders'
type RequestHead = Pick<IncomingMessage, HeadPart>
type HeadLimits = Pick<Config['limits'], 'headerLines'>

/** @param isPeerTrusted - whether the client is a proxy of `forwarded.trust` */
export function admit(
  head: RequestHead,
  limits: HeadLimits,
  isPeerTrusted = false,
): Result<AdmittedRequest, AdmissionRefusal> {
  const { method = '', url = '', rawHeaders } = head
  const refused = refusedMethod(method) ?? refusedVersion(head) ?? refusedLineCount(rawHeaders, limits)
  if (refused !== undefined) {
    return failed(refused)
  }
  const isHttp10 = head.httpVersionMinor === 0
  const lines = new HeaderLines(rawHeaders, isPeerTrusted)
  const names = judgeNames(lines)
  if (names.isRefused) {
    return failed(malformed('header name'))
  }
  const refusedHeader = refusedHost(lines, isHttp10) ?? refusedExpectation(lines) ?? refusedConnection(lines)
  if (refusedHeader !== undefined) {
    return failed(refusedHeader)
  }
  const framing = readOnlyFraming(lines, isHttp10)
  if (!framing.ok) {
    return failed(malformed(framing.error))
  }
  const host = lastValue(lines, 'host')
  const target = originForm(url, host)
  if (target === undefined) {
    return failed(malformed('target'))
  }
  const { isChunked, contentLength = '0' } = framing.value
  const hasBody = isChunked || contentLength !== '0'
  const upgrade = lines.connectionOptions?.has('upgrade') ? lines.joined('upgrade') : undefined
  return ok({
    method,
    target,
    path: pathOf(target),
    host,
    lines,
    headersAddAccess: names.addAccess,
    authorization: lastValue(lines, 'authorization'),
    hasTwoAuthorizations: isRepeated(lines, 'authorization'),
    hasBody,
    isChunked,
    offersUpgrade: upgrade !== undefined || offersProxyUpgrade(lines),
    isWebSocket: upgrade?.toLowerCase() === 'websocket' && method === 'GET' && !hasBody && !isHttp10,
    isPreflight: isPreflight(method, lines),
    requestId: requestIdOf(lines),
  })
}

type Refused = AdmissionRefusal | undefined

const malformed = (cause: string): AdmissionRefusal => ({ error: ERRORS.malformedRequest, cause })

/** TRACE would echo the identity headers to the client (RFC 9110, section 9.3.8). */
const refusedMethod = (method: string): Refused =>
  method === 'CONNECT' || method === 'TRACE' ? malformed('method') : undefined

/** Node's parser also accepts HTTP/0.9 and HTTP/2.0, and frames their responses differently. */
const refusedVersion = ({ httpVersionMajor }: RequestHead): Refused =>
  httpVersionMajor === 1 ? undefined : malformed('HTTP version')

const refusedLineCount = ({ length }: readonly string[], { headerLines }: HeadLimits): Refused =>
  length > 2 * headerLines ? { error: ERRORS.headersTooLarge, cause: 'header lines' } : undefined

/** What the names of the lines say, in one pass, because each line needs its rule. */
function judgeNames(lines: HeaderLines) {
  let isRefused = false
  let addAccess = false
  for (let line = 0; line < lines.kinds.length; line++) {
    const { request, adds } = lines.rule(line)
    isRefused ||= request === 'refuse'
    addAccess ||= adds === 'path' || adds === 'uncheckable'
  }
  return { isRefused, addAccess }
}

/** HTTP/1.0 allows a request without `Host`. */
function refusedHost(lines: HeaderLines, isHttp10: boolean): Refused {
  const host = lastValue(lines, 'host')
  const isAccepted = host === undefined ? isHttp10 : isHost(host) && !isRepeated(lines, 'host')
  return isAccepted ? undefined : malformed('Host')
}

function refusedExpectation(lines: HeaderLines): Refused {
  for (let line = 0; line < lines.kinds.length; line++) {
    if (lines.kinds[line] === 'expect' && lines.value(line).toLowerCase() !== '100-continue') {
      return { error: ERRORS.expectationFailed, cause: 'Expect' }
    }
  }
  return undefined
}

function refusedConnection({ connectionOptions }: HeaderLines): Refused {
  const isRefused = connectionOptions !== undefined && namesFramingOrIdentity(connectionOptions)
  return isRefused ? malformed('Connection') : undefined
}

/** A body may have a length or be chunked, but not both. */
function readOnlyFraming(lines: HeaderLines, isHttp10: boolean): Result<Framing, FramingFault> {
  const framing = readFraming(lines, { isHttp10, sender: 'client' })
  if (framing.ok && framing.value.isChunked && framing.value.contentLength !== undefined) {
    return failed('Content-Length')
  }
  return framing
}

/** Node's parser takes `Proxy-Connection` for `Connection`. */
const offersProxyUpgrade = (lines: HeaderLines) =>
  lines.kinds.includes('upgrade') && lines.values('proxy-connection').length > 0

const isPreflight = (method: string, lines: HeaderLines) =>
  method === 'OPTIONS' &&
  lines.values('origin').length > 0 &&
  lines.values('access-control-request-method').length > 0

function lastValue(lines: HeaderLines, kind: 'host' | 'authorization'): string | undefined {
  const line = lines.kinds.lastIndexOf(kind)
  return line < 0 ? undefined : lines.value(line)
}

const isRepeated = ({ kinds }: HeaderLines, kind: 'host' | 'authorization') =>
  kinds.indexOf(kind) !== kinds.lastIndexOf(kind)
