/**
 * Admission: refuses ambiguous requests, before routing.
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

export interface Admitted {
  readonly method: string
  /** In origin form. */
  readonly target: string
  /** The target's bytes before `?`: routing uses nothing else. */
  readonly path: string
  /** Absent only in an HTTP/1.0 request. */
  readonly host: string | undefined
  readonly rawHeaders: readonly string[]
  /** `kinds[i]` is that of the name `rawHeaders[2 * i]`. */
  readonly kinds: readonly HeaderKind[]
  /** A header names a second path, or another method. */
  readonly namesOtherRequest: boolean
  readonly authorization: string | undefined
  readonly hasBody: boolean
  readonly isChunked: boolean
  readonly expectsContinue: boolean
  readonly offersUpgrade: boolean
  /** An unambiguous WebSocket handshake (RFC 6455, section 4.1). */
  readonly isWebSocket: boolean
  /** The client's, if it sent exactly one that is valid. */
  readonly requestId: string | undefined
  readonly connectionOptions: ConnectionOptions | undefined
  /** A CORS preflight (Fetch standard). */
  readonly isPreflight: boolean
}

/** `malformed`: a token, in two `Authorization` lines. */
export type Admission = Result<Admitted, PublicError | 'malformed'>

const badRequest = failed(ERRORS.malformedRequest)
const tooLarge = failed(ERRORS.headersTooLarge)
const badExpectation = failed(ERRORS.expectationFailed)
const twoAuthorizations = failed('malformed')

export function admit(head: RequestHead, maxHeaderLines: number): Admission {
  const { method = '', url = '', rawHeaders: raw } = head
  // TRACE would echo the identity headers to the client (RFC 9110, section 9.3.8). Node's parser also accepts HTTP/0.9
  // and HTTP/2.0, and frames their responses differently.
  if (method === 'CONNECT' || method === 'TRACE' || head.httpVersionMajor !== 1) return badRequest
  if (raw.length > 2 * maxHeaderLines) return tooLarge
  const http10 = head.httpVersionMinor === 0
  let host: string | undefined
  let contentLength: string | undefined
  let isChunked = false
  let authorization: string | undefined
  let authorizations = 0
  let requestId: string | undefined
  let connection: string | undefined
  let upgrade: string | undefined
  let expectsContinue = false
  let namesOtherRequest = false
  const kinds: HeaderKind[] = []
  for (let at = 0; at < raw.length; at += 2) {
    const value = raw[at + 1] as string
    const kind = headerKind(raw[at] as string)
    kinds.push(kind)
    switch (kind) {
      case 'host':
        if (host !== undefined || !isHost(value)) return badRequest
        host = value
        break
      case 'contentLength':
        if (contentLength !== undefined || !CONTENT_LENGTH.test(value)) return badRequest
        contentLength = value
        break
      case 'transferEncoding':
        // Parsers disagree on lists of codings. HTTP/1.0 has no chunks (RFC 9112, section 6.1).
        if (isChunked || http10 || value.toLowerCase() !== 'chunked') return badRequest
        isChunked = true
        break
      case 'authorization':
        authorizations++
        authorization = value
        break
      case 'connection':
        connection = joined(connection, value)
        break
      case 'upgrade':
        upgrade = joined(upgrade, value)
        break
      case 'expect':
        if (http10) break
        if (value.toLowerCase() !== '100-continue') return badExpectation
        expectsContinue = true
        break
      case 'requestId':
        requestId = joined(requestId, value)
        break
      case 'secondPath':
      case 'override':
        namesOtherRequest = true
        break
      default:
        if (HEADER_RULES[kind].request === 'refuse') return badRequest
    }
  }
  if (isChunked && contentLength !== undefined) return badRequest
  const connectionOptions = connection === undefined ? undefined : parseConnection(connection)
  if (connectionOptions !== undefined && namesFramingOrIdentity(connectionOptions)) return badRequest
  if (host === undefined && !http10) return badRequest
  const target = originForm(url, host)
  if (target === undefined) return badRequest
  if (authorizations > 1) return twoAuthorizations

  const hasBody = isChunked || (contentLength !== undefined && contentLength !== '0')
  const offersUpgrade = upgrade !== undefined && connectionOptions?.has('upgrade') === true
  return {
    ok: true,
    value: {
      method,
      target,
      path: pathOf(target),
      host,
      rawHeaders: raw,
      kinds,
      namesOtherRequest,
      authorization,
      hasBody,
      isChunked,
      offersUpgrade,
      isWebSocket:
        offersUpgrade && upgrade?.toLowerCase() === 'websocket' && method === 'GET' && !hasBody && !http10,
      expectsContinue,
      requestId: isRequestId(requestId) ? requestId : undefined,
      connectionOptions,
      isPreflight:
        method === 'OPTIONS' &&
        ['origin', 'access-control-request-method'].every((name) => headerValues(raw, name).length > 0),
    },
  }
}

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
