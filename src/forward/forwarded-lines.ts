/**
 * The forwarding headers that say who is at the other end of a client connection.
 *
 * In: the facts of the connection and the request's host. Out: our own lines, which replace those of a client that
 * is not trusted.
 *
 * @module
 */
import type { Peer } from '../http/peer.ts'

/** Our five lines for one request. A host that is not a token is quoted in `Forwarded` (RFC 7239, section 4). */
export function forwardedLines(peer: Peer, host: string | undefined): string {
  return host === undefined
    ? `${peer.lines}${peer.forwarded}\r\n`
    : `${peer.lines}X-Forwarded-Host: ${host}\r\n${peer.forwarded};host="${host}"\r\n`
}
