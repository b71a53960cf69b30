/**
 * Writes the head and the trailers of the request to the upstream (RFC 9110, section 7.6).
 * In: the client's header lines, and the caller. Out: the same lines in the same order, without hop-by-hop
 * headers, identity headers and, by default, the token, followed by the headers that the sidecar adds.
 */
import type { RequestContext, SidecarRequest } from '../client/request.ts'
import type { ServiceDecision } from '../gate/gate.ts'
import { forwardedTrailers, type HeaderLines, headerText } from '../http/headers.ts'

/** The hop-by-hop lines of a WebSocket handshake and of its 101. */
export const UPGRADE_LINES = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'

/**
 * Returns the head with the final empty line. Every character is one byte (Latin-1).
 * @param upstream - its host is the `Host` for an HTTP/1.0 request without one: HTTP/1.1 requires it
 */
export function requestHeadText(
  context: RequestContext,
  decision: ServiceDecision,
  upstream: { readonly host: string; readonly assertionAudience: string },
): string {
  const { admitted, caller } = decision
  const { lines, host, requestId } = admitted
  const { peer } = context.connection
  const headerChange = upstreamHeadersOf(context)
  const forwards: ForwardedLines = {
    authorization: decision.forwardsAuthorization,
    requestId: requestId !== undefined,
    proxyLines: peer.isTrusted,
    removed: headerChange?.removed,
  }
  let hasProxyLines = false
  let head = `${admitted.method} ${decision.target ?? admitted.target} HTTP/1.1\r\n`
  for (let line = 0; line < lines.kinds.length; line++) {
    if (isForwarded(lines, line, forwards)) {
      head += `${lines.name(line)}: ${lines.value(line)}\r\n`
      hasProxyLines ||= lines.rule(line).request === 'ifTrusted'
    }
  }
  if (host === undefined) {
    head += `Host: ${upstream.host}\r\n`
  }
  if (requestId === undefined) {
    head += `X-Request-Id: ${context.id}\r\n`
  }
  if (!hasProxyLines) {
    head += peer.forwardedLines(host)
  }
  const assertion = caller?.assertions?.get(upstream.assertionAudience)
  if (assertion !== undefined) {
    head += `X-Authenticated-Assertion: ${assertion}\r\n`
  }
  if (caller !== undefined) {
    head += caller.identityLines
  }
  if (headerChange !== undefined) {
    head += headerChange.addedLines
  }
  if (context.isDetached) {
    head += UPGRADE_LINES
  }
  return `${head}\r\n`
}

/** Whether the upstream receives header lines that are forwarded on a condition. */
interface ForwardedLines {
  readonly authorization: boolean
  readonly requestId: boolean
  /** `Forwarded` and `X-Forwarded-*`. */
  readonly proxyLines: boolean
  /** Names of lines that are not forwarded, in lower case. */
  readonly removed: ReadonlySet<string> | undefined
}

function isForwarded(lines: HeaderLines, line: number, forwards: ForwardedLines): boolean {
  const { request } = lines.rule(line)
  switch (request) {
    case 'forward':
      return !lines.isNamedByConnection(line) && !forwards.removed?.has(lines.name(line).toLowerCase())
    case 'ifAllowed':
      return forwards.authorization
    case 'ifValid':
      return forwards.requestId
    case 'ifTrusted':
      return forwards.proxyLines && !lines.isNamedByConnection(line)
    case 'remove':
    case 'refuse':
      return false
    default:
      return request satisfies never
  }
}

/** At most one watcher of a request changes headers. */
const upstreamHeadersOf = ({ watchers }: RequestContext) =>
  watchers.find(({ upstreamHeaders }) => upstreamHeaders !== undefined)?.upstreamHeaders

export const requestTrailerLines = (req: SidecarRequest, { admitted, isRestricted }: ServiceDecision) =>
  headerText(forwardedTrailers(req.rawTrailers, admitted.lines, isRestricted).flat())
