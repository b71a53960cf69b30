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
import { readFraming } from '../http/framing.ts'
import { HeaderLines, namesFramingOrIdentity, requestIdOf } from '../http/headers.ts'
import { isHost } from '../http/hosts.ts'
import { originForm, pathOf, type RequestedAccess } from '../http/request-target.ts'

/** `cause`: the part of the head that is refused, for the access log. */
type AdmissionRefusal = Readonly<{ error: PublicError; cause: string }>

const notAdmitted = (cause: string, error: PublicError = ERRORS.malformedRequest) => failed({ error, cause })

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
  const { method = '', url = '', httpVersionMajor, httpVersionMinor, rawHeaders } = head
  // TRACE would echo the identity headers to the client (RFC 9110, section 9.3.8). Node's parser also accepts
  // HTTP/0.9 and HTTP/2.0, and frames their responses differently.
  if (method === 'CONNECT' || method === 'TRACE') {
    return notAdmitted('method')
  }
  if (httpVersionMajor !== 1) {
    return notAdmitted('HTTP version')
  }
  if (rawHeaders.length > 2 * limits.headerLines) {
    return notAdmitted('header lines', ERRORS.headersTooLarge)
  }
  const isHttp10 = httpVersionMinor === 0
  const lines = new HeaderLines(rawHeaders, isPeerTrusted)
  let host: string | undefined
  let authorization: string | undefined
  let hasTwoAuthorizations = false
  let headersAddAccess = false
  for (let line = 0; line < lines.kinds.length; line++) {
    const value = lines.value(line)
    switch (lines.kinds[line]) {
      case 'host':
        if (host !== undefined || !isHost(value)) {
          return notAdmitted('Host')
        }
        host = value
        break
      case 'authorization':
        hasTwoAuthorizations = authorization !== undefined
        authorization = value
        break
      case 'expect':
        if (value.toLowerCase() !== '100-continue') {
          return notAdmitted('Expect', ERRORS.expectationFailed)
        }
        break
      default: {
        const { request, adds } = lines.rule(line)
        if (request === 'refuse') {
          return notAdmitted('header name')
        }
        if (adds === 'path' || adds === 'uncheckable') {
          headersAddAccess = true
        }
      }
    }
  }
  const framing = readFraming(lines, { isHttp10, sender: 'client' })
  if (!framing.ok) {
    return notAdmitted(framing.error)
  }
  const { contentLength, isChunked } = framing.value
  if (isChunked && contentLength !== undefined) {
    return notAdmitted('Content-Length')
  }
  const { connectionOptions } = lines
  if (connectionOptions !== undefined && namesFramingOrIdentity(connectionOptions)) {
    return notAdmitted('Connection')
  }
  if (host === undefined && !isHttp10) {
    return notAdmitted('Host')
  }
  const target = originForm(url, host)
  if (target === undefined) {
    return notAdmitted('target')
  }
  const hasBody = isChunked || (contentLength !== undefined && contentLength !== '0')
  const upgrade = connectionOptions?.has('upgrade') ? lines.joined('upgrade') : undefined
  return ok({
    method,
    target,
    path: pathOf(target),
    host,
    lines,
    headersAddAccess,
    authorization,
    hasTwoAuthorizations,
    hasBody,
    isChunked,
    // Node's parser takes `Proxy-Connection` for `Connection`.
    offersUpgrade:
      upgrade !== undefined ||
      (lines.kinds.includes('upgrade') && lines.values('proxy-connection').length > 0),
    isWebSocket: upgrade?.toLowerCase() === 'websocket' && method === 'GET' && !hasBody && !isHttp10,
    isPreflight: method === 'OPTIONS' && PREFLIGHT.every((name) => lines.values(name).length > 0),
    requestId: requestIdOf(lines),
  })
}

const PREFLIGHT = ['origin', 'access-control-request-method']
