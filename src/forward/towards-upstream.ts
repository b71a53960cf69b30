/**
 * The header rules towards the upstream.
 *
 * In: the client's head and who the caller is. Out: the text of the upstream request's head. It is the client's,
 * names, order, values and multiplicity, except for what must not pass (hop-by-hop headers, what `Connection`
 * nominates, the token, anything that claims an identity) and what we add at its end.
 *
 * @module
 */
import type { Admitted } from '../gate/admission.ts'
import { HeaderKind, headerKind } from '../gate/header-names.ts'
import type { LastForwarded } from '../http/client-connection.ts'
import type { Peer } from '../http/peer.ts'
import { ownText } from '../own-text.ts'
import type { Identity } from '../token/verdict.ts'
import { forwardedLines } from './forwarded-lines.ts'
import { identityLines } from './identity-headers.ts'

/** What a head is made of. */
export interface RequestHeadParts {
  readonly request: Admitted
  /** The client's header lines, names and values alternating. */
  readonly rawHeaders: readonly string[]
  /** Absent on a public route: then neither identity nor `Authorization` goes upstream. */
  readonly identity: Identity | undefined
  readonly requestId: string
  readonly peer: Peer
  /** Setting `identity.forwardAuthorization`. */
  readonly forwardAuthorization: boolean
  /** The protocol that the client asks to change to, where it may. */
  readonly upgradeTo?: string | undefined
  /** `Host` for an HTTP/1.0 request that has none: HTTP/1.1 demands one. */
  readonly upstreamHost: string
  /** What was made for the request before, on the same connection. */
  readonly last?: LastForwarded | undefined
}

/** The head of the upstream request, ended by its empty line; every character is one byte (Latin-1). */
export function upstreamRequestHead(parts: RequestHeadParts): string {
  const { request, requestId } = parts
  const head = `${request.method} ${request.target} HTTP/1.1\r\n${rememberedLines(parts)}`
  return request.requestId === undefined ? `${head}X-Request-Id: ${requestId}\r\n\r\n` : `${head}\r\n`
}

/** The lines that are the same for each request with the same header lines of the same caller on one connection. */
function rememberedLines(parts: RequestHeadParts): string {
  const { request, rawHeaders, identity, last } = parts
  // Without a `Host` the lines are not the same for each upstream.
  if (last === undefined || request.host === undefined || parts.upgradeTo !== undefined)
    return upstreamLines(parts)
  if (last.rawHeaders !== rawHeaders || last.identity !== identity) {
    last.lines = upstreamLines(parts)
    last.rawHeaders = rawHeaders
    last.identity = identity
    last.isFlat = false
  } else if (!last.isFlat) {
    // Put together from pieces, it would be copied piece by piece for each request.
    last.lines = ownText(last.lines)
    last.isFlat = true
  }
  return last.lines
}

function upstreamLines(parts: RequestHeadParts): string {
  const { request, rawHeaders, identity, peer } = parts
  const nominated = request.nominated
  let lines = ''
  let forwardedSeen = false
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    switch (headerKind(name)) {
      case HeaderKind.other:
      case HeaderKind.expect:
      case HeaderKind.trailer:
        if (nominated?.has(name.toLowerCase())) continue
        break
      case HeaderKind.host:
      case HeaderKind.contentLength:
      case HeaderKind.transferEncoding:
        break
      case HeaderKind.authorization:
        if (!parts.forwardAuthorization || identity === undefined) continue
        break
      case HeaderKind.requestId:
        if (request.requestId === undefined) continue
        break
      case HeaderKind.forwarded:
        if (!peer.trusted || nominated?.has(name.toLowerCase())) continue
        forwardedSeen = true
        break
      default:
        continue
    }
    lines += `${name}: ${rawHeaders[at + 1]}\r\n`
  }
  if (request.host === undefined) lines += `Host: ${parts.upstreamHost}\r\n`
  if (!forwardedSeen) lines += forwardedLines(peer, request.host)
  if (identity !== undefined) lines += identityLines(identity)
  if (parts.upgradeTo !== undefined) lines += `Connection: Upgrade\r\nUpgrade: ${parts.upgradeTo}\r\n`
  return lines
}

/**
 * The trailer section of a chunked request, without the lines that may not come behind a body: framing, routing
 * and anything we decided on already (RFC 9110, section 6.5.1). Ends with its empty line.
 */
export function upstreamTrailers(rawTrailers: readonly string[]): string {
  let trailers = ''
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    if (headerKind(name) === HeaderKind.other) trailers += `${name}: ${rawTrailers[at + 1]}\r\n`
  }
  return `${trailers}\r\n`
}
