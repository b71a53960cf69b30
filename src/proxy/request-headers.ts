/**
 * Header rules towards the upstream (RFC 9110, section 7.6).
 * In: the client's head and the caller. Out: the upstream request's head: the client's names, order, values and
 * multiplicity, without hop-by-hop headers, token and identity headers, and with the headers of the sidecar.
 */
import type { Admitted } from '../gate/admission.ts'
import type { ServiceDecision } from '../gate/decide.ts'
import { headerKind } from '../http/headers.ts'
import type { RequestContext } from '../server/context.ts'
import { UPGRADE_LINES } from './tunnel.ts'
import type { Upstream } from './upstream.ts'

/** Returns the head with its empty line; every character is one byte (Latin-1). */
export function requestHead(
  context: RequestContext,
  admitted: Admitted,
  { caller, wouldRefuse, target = admitted.target }: ServiceDecision,
  upstream: Pick<Upstream, 'host' | 'assertionAudience' | 'forwardAuthorization'>,
): string {
  const { rawHeaders, host, requestId, connectionOptions } = admitted
  const { peer } = context.connection
  // Report mode forwards a refused token unchanged; a public route never forwards one.
  const keepAuthorization = caller === undefined ? wouldRefuse !== undefined : upstream.forwardAuthorization
  let isForwardedKept = false
  let head = `${admitted.method} ${target} HTTP/1.1\r\n`
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    switch (headerKind(name)) {
      case 'host':
      case 'contentLength':
      case 'transferEncoding':
        break
      case 'other':
      case 'condition':
      case 'secondPath':
      case 'override':
      case 'trailer':
        if (connectionOptions?.has(name.toLowerCase())) continue
        break
      case 'authorization':
        if (!keepAuthorization) continue
        break
      case 'requestId':
        if (requestId === undefined) continue
        break
      case 'forwarded':
        if (!peer.isTrusted || connectionOptions?.has(name.toLowerCase())) continue
        isForwardedKept = true
        break
      default:
        continue
    }
    head += `${name}: ${rawHeaders[at + 1]}\r\n`
  }
  if (host === undefined) head += `Host: ${upstream.host}\r\n`
  if (requestId === undefined) head += `X-Request-Id: ${context.id}\r\n`
  if (!isForwardedKept) head += peer.forwardedLines(host)
  const assertion = caller?.assertions?.get(upstream.assertionAudience)
  if (assertion !== undefined) head += `X-Authenticated-Assertion: ${assertion}\r\n`
  if (caller !== undefined) head += caller.identityLines
  if (context.isDetached) head += UPGRADE_LINES
  return `${head}\r\n`
}
