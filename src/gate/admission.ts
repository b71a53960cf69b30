/**
 * Admission: which requests are unambiguous enough to be looked at.
 *
 * In: a request head whose lines are well-formed. Out: the few facts that the later stages need, where its body ends
 * among them, or a refusal. Well-formed lines still leave room for two readings (a second `Host`, a list in it, `#` in
 * the target, two lengths, names that fold to framing headers); everything on which two parsers could differ ends here,
 * before routing and before anything reaches the upstream (RFC 9112, sections 3.2, 6.3 and 11.2).
 *
 * @module
 */
import { ERRORS, type PublicError } from '../errors.ts'
import { nominate } from './connection-header.ts'
import { isChunked, isContentLength, isOneFraming } from './framing.ts'
import { HeaderKind, headerKind } from './header-names.ts'
import { isHost } from './host.ts'
import { isRequestId } from './request-id.ts'
import { originForm } from './request-target.ts'

/** A request head. */
export interface RequestHead {
  readonly method: string
  /** The raw request target. */
  readonly url: string
  readonly httpVersion: '1.0' | '1.1'
  /** Names and values alternating, as they stood on the wire, decoded as Latin-1. */
  readonly rawHeaders: readonly string[]
}

/** Bounds of a request head. */
export interface HeadLimits {
  /** Field lines. */
  readonly headerLines: number
  /** Bytes of the field lines with their line ends; also the bound of the request target alone. */
  readonly headerBytes: number
}

/** What is known of an admitted request. */
export interface Admitted {
  readonly method: string
  /** The request target in origin form, as the upstream will get it. */
  readonly target: string
  /** The target's bytes before `?`: the only thing that routes. */
  readonly path: string
  /** Absent only in an HTTP/1.0 request. */
  readonly host: string | undefined
  readonly authorization: string | undefined
  /** Whether bytes may follow the head. */
  readonly hasBody: boolean
  readonly chunked: boolean
  /** Bytes of the body, unless it is chunked. */
  readonly contentLength: number
  /** Whether the client waits for `100 Continue` before it sends its body. */
  readonly expectsContinue: boolean
  /** The value of `Upgrade`; of several, the list that they make. */
  readonly upgrade: string | undefined
  /** The client's request id, if it sent exactly one that can be kept. */
  readonly requestId: string | undefined
  /** Lower-cased names that `Connection` nominates as hop-by-hop, `close` and `keep-alive` among them. */
  readonly nominated: ReadonlySet<string> | undefined
  /** CORS preflight (Fetch standard): OPTIONS with `Origin` and `Access-Control-Request-Method`. */
  readonly preflight: boolean
  /** Whether the request line says HTTP/1.0. */
  readonly http10: boolean
  /** Whether the client would send another request on its connection (RFC 9112, section 9.3). */
  readonly persistent: boolean
}

/**
 * What is kept of the request that was admitted last on a connection: clients repeat their header lines, and then only
 * the request line has to be looked at.
 */
export interface LastAdmitted {
  rawHeaders: readonly string[]
  fields: AdmittedFields | undefined
}

/** What does not depend on the target, which may be long and is not kept. */
type AdmittedFields = Omit<Admitted, 'target' | 'path'>

/** The outcome of admission. `authorization: true` says that what is wrong is a second `Authorization`. */
export type Admission =
  | { readonly ok: true; readonly request: Admitted }
  | { readonly ok: false; readonly error: PublicError; readonly authorization: boolean }

const malformed: Extract<Admission, { ok: false }> = {
  ok: false,
  error: ERRORS.malformedRequest,
  authorization: false,
}
const tooLarge: Extract<Admission, { ok: false }> = {
  ok: false,
  error: ERRORS.headersTooLarge,
  authorization: false,
}
const twiceAuthorized: Admission = { ok: false, error: ERRORS.invalidToken, authorization: true }

/** Alone or in a list. */
const CONTINUE = /(?:^|[\s,])100-continue(?:$|[\s,])/i

/**
 * Admits a request, or says why not.
 *
 * @param head - the head as the parser took it
 * @param limits - bounds of the head
 * @param last - of the connection
 */
export function admit(head: RequestHead, limits: HeadLimits, last?: LastAdmitted): Admission {
  const before = last?.rawHeaders === head.rawHeaders ? last.fields : undefined
  if (before !== undefined && before.method === head.method && before.http10 === (head.httpVersion === '1.0'))
    return admitTarget(head, limits, before)
  const found = admitFields(head, limits)
  if (last !== undefined) {
    last.rawHeaders = head.rawHeaders
    last.fields = found.ok && !found.twice ? found.fields : undefined
  }
  if (!found.ok) return found
  const admission = admitTarget(head, limits, found.fields)
  return admission.ok && found.twice ? twiceAuthorized : admission
}

/** What the header lines say, or why they cannot be believed. `twice`: of two tokens nobody knows which is meant. */
type Found =
  | { readonly ok: true; readonly fields: AdmittedFields; readonly twice: boolean }
  | Extract<Admission, { ok: false }>

function admitFields(head: RequestHead, limits: HeadLimits): Found {
  const method = head.method
  const http10 = head.httpVersion === '1.0'
  // Refused on every route.
  if (method === 'CONNECT' || method === 'TRACE') return malformed

  const raw = head.rawHeaders
  if (raw.length > 2 * limits.headerLines) return tooLarge
  let bytes = 0
  let host: string | undefined
  let contentLength: string | undefined
  let transferEncoding: string | undefined
  let authorization: string | undefined
  let requestId: string | undefined
  let requestIds = 0
  let nominated: Set<string> | undefined
  let upgrade: string | undefined
  let expectsContinue = false
  let twice = false
  let origin = false
  let preflightMethod = false
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string
    const value = raw[at + 1] as string
    bytes += name.length + value.length + 4 // ": " and the line end
    switch (headerKind(name)) {
      case HeaderKind.other:
        if (method === 'OPTIONS') {
          const lower = name.toLowerCase()
          origin ||= lower === 'origin'
          preflightMethod ||= lower === 'access-control-request-method'
        }
        break
      case HeaderKind.host:
        if (host !== undefined) return malformed
        host = value
        break
      case HeaderKind.contentLength:
        if (contentLength !== undefined || !isContentLength(value)) return malformed
        contentLength = value
        break
      case HeaderKind.transferEncoding:
        if (transferEncoding !== undefined || !isChunked(value)) return malformed
        transferEncoding = value
        break
      case HeaderKind.authorization:
        if (authorization !== undefined) twice = true
        authorization = value
        break
      case HeaderKind.connection:
        nominated = nominate(nominated, value)
        if (nominated === undefined) return malformed
        break
      case HeaderKind.upgrade:
        upgrade = upgrade === undefined ? value : `${upgrade}, ${value}`
        break
      case HeaderKind.expect:
        expectsContinue ||= !http10 && CONTINUE.test(value)
        break
      case HeaderKind.requestId:
        requestIds++
        requestId = value
        break
      case HeaderKind.lookAlike:
        return malformed
    }
  }
  if (bytes > limits.headerBytes) return tooLarge
  if (!isOneFraming(contentLength, transferEncoding, http10)) return malformed
  if (host === undefined ? !http10 : !isHost(host)) return malformed

  const fields: AdmittedFields = {
    method,
    host,
    authorization,
    hasBody: transferEncoding !== undefined || (contentLength !== undefined && contentLength !== '0'),
    chunked: transferEncoding !== undefined,
    contentLength: Number(contentLength ?? 0),
    expectsContinue,
    upgrade,
    requestId: requestIds === 1 && requestId !== undefined && isRequestId(requestId) ? requestId : undefined,
    nominated,
    preflight: origin && preflightMethod,
    http10,
    persistent: nominated === undefined ? !http10 : isPersistent(nominated, http10),
  }
  return { ok: true, fields, twice }
}

/** What is left to look at where the rest is known. */
function admitTarget({ url }: RequestHead, limits: HeadLimits, rest: AdmittedFields): Admission {
  if (url.length > limits.headerBytes) return tooLarge
  const target = originForm(url, rest.host)
  if (target === undefined) return malformed
  const query = target.indexOf('?')
  return {
    ok: true,
    // One by one: V8 is slow to spread an object of so many properties.
    request: {
      target,
      path: query < 0 ? target : target.slice(0, query),
      method: rest.method,
      host: rest.host,
      authorization: rest.authorization,
      hasBody: rest.hasBody,
      chunked: rest.chunked,
      contentLength: rest.contentLength,
      expectsContinue: rest.expectsContinue,
      upgrade: rest.upgrade,
      requestId: rest.requestId,
      nominated: rest.nominated,
      preflight: rest.preflight,
      http10: rest.http10,
      persistent: rest.persistent,
    },
  }
}

function isPersistent(nominated: ReadonlySet<string>, http10: boolean): boolean {
  return !nominated.has('close') && (!http10 || nominated.has('keep-alive'))
}
