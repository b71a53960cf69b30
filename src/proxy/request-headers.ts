/**
 * Header rules towards the upstream (RFC 9110, section 7.6).
 * In: the client's head and the caller. Out: the upstream request's head: the client's names, order, values and
 * multiplicity, without hop-by-hop headers, token and identity headers, and with the headers of the sidecar.
 */
import type { Admitted } from '../gate/admission.ts'
import { type ConnectionOptions, flatCopy, HeaderKind, headerKind, isTrailer } from '../http/headers.ts'
import type { Peer } from '../server/client-address.ts'
import type { Caller } from '../token/caller.ts'
import { UPGRADE_LINES } from './websocket.ts'

export interface RequestHeadParts {
  readonly request: Admitted
  readonly rawHeaders: readonly string[]
  /** Absent on a public route and where report mode ignores a refusal: no identity headers are sent. */
  readonly caller: Caller | undefined
  readonly requestId: string
  readonly peer: Peer
  readonly keepAuthorization: boolean
  /** `Host` for an HTTP/1.0 request that has none: HTTP/1.1 requires one. */
  readonly upstreamHost: string
  readonly assertionAudience: string
  readonly isHandshake?: boolean
}

/** Returns the head with its empty line; every character is one byte (Latin-1). */
export function requestHead(parts: RequestHeadParts, target = parts.request.target): string {
  const upgradeLines = parts.isHandshake ? UPGRADE_LINES : ''
  return `${parts.request.method} ${target} HTTP/1.1\r\n${headerLines(parts)}${upgradeLines}\r\n`
}

/** Each with its end. */
function headerLines(parts: RequestHeadParts): string {
  const { request, rawHeaders, caller, peer } = parts
  const options = request.connectionOptions
  let lines = ''
  let forwardedSeen = false
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    switch (headerKind(name)) {
      case HeaderKind.host:
      case HeaderKind.contentLength:
      case HeaderKind.transferEncoding:
        break
      case HeaderKind.other:
      case HeaderKind.condition:
      case HeaderKind.secondPath:
      case HeaderKind.override:
      case HeaderKind.trailer:
        if (options?.has(name.toLowerCase())) continue
        break
      case HeaderKind.authorization:
        if (!parts.keepAuthorization) continue
        break
      case HeaderKind.requestId:
        if (request.requestId === undefined) continue
        break
      case HeaderKind.forwarded:
        if (!peer.trusted || options?.has(name.toLowerCase())) continue
        forwardedSeen = true
        break
      default:
        continue
    }
    lines += `${name}: ${rawHeaders[at + 1]}\r\n`
  }
  if (request.host === undefined) lines += `Host: ${parts.upstreamHost}\r\n`
  if (request.requestId === undefined) lines += `X-Request-Id: ${parts.requestId}\r\n`
  if (!forwardedSeen) lines += peer.forwardedLines(request.host)
  if (caller === undefined) return lines
  const assertion = caller.assertions?.get(parts.assertionAudience)
  if (assertion !== undefined) lines += `X-Authenticated-Assertion: ${assertion}\r\n`
  return lines + identityLines(caller)
}

export function requestTrailers(
  rawTrailers: readonly string[],
  options: ConnectionOptions | undefined,
  caller?: Caller,
): string {
  const isScoped = caller?.identity.scope !== undefined || caller?.link !== undefined
  let trailers = ''
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    if (isTrailer(name, options, isScoped)) trailers += `${name}: ${rawTrailers[at + 1]}\r\n`
  }
  return `${trailers}\r\n`
}

/** Returns names and values, alternating; without an assertion unless an audience is given. */
export function identityHeaders({ identity, assertions }: Caller, assertionAudience = ''): string[] {
  const headers = [
    'X-Authenticated-Account-Id',
    encodeIdentityValue(identity.accountId),
    'X-Authenticated-Access-Key',
    encodeIdentityValue(identity.accessKey),
    'X-Authenticated-Token-Id',
    encodeIdentityValue(identity.tokenId),
    'X-Authenticated-Token-Expires',
    String(identity.expiresAtSeconds),
  ]
  if (identity.scope !== undefined) headers.push('X-Authenticated-Scope', identity.scope.text)
  const assertion = assertions?.get(assertionAudience)
  if (assertion !== undefined) headers.push('X-Authenticated-Assertion', assertion)
  return headers
}

/** The lines of a cached token's identity are rendered once. */
const rendered = new WeakMap<Caller, string>()

function identityLines(caller: Caller): string {
  const known = rendered.get(caller)
  if (known !== undefined) return known
  let lines = ''
  const headers = identityHeaders(caller)
  for (let at = 0; at < headers.length; at += 2) lines += `${headers[at]}: ${headers[at + 1]}\r\n`
  lines = flatCopy(lines) // 1.1 KB less for each cached token
  rendered.set(caller, lines)
  return lines
}

/** Percent-encodes `%` and every character outside `!` to `~`: reversible, and no value can inject a line. */
export function encodeIdentityValue(value: string): string {
  return value.toWellFormed().replace(/[^!-$&-~]/gu, encodeURIComponent)
}
