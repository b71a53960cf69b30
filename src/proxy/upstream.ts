/** An upstream, a request that is forwarded to it, and how one that failed before a response is refused. */
import { ERRORS, type PublicError } from '../errors.ts'
import type { Admitted } from '../gate/admission.ts'
import type { ServiceDecision } from '../gate/decide.ts'
import { isClientFailure, type UpstreamFailure, type UpstreamOutcome } from '../http/proxy-errors.ts'
import type { SidecarResponse } from '../server/context.ts'
import type { Responder } from '../server/respond.ts'
import type { Verdict } from '../token/caller.ts'
import type { UpstreamPool } from './upstream-pool.ts'

export interface Upstream {
  /** Without a slash at the end. */
  readonly pathPrefix: string
  readonly pool: UpstreamPool
  /** `Host` for an HTTP/1.0 request that has none: HTTP/1.1 requires one. */
  readonly host: string
  readonly assertionAudience: string
  /** Whether an accepted token is forwarded. */
  readonly forwardAuthorization: boolean
  /** Open tunnels with a token, to any upstream. */
  readonly tunnels: Set<{ recheck(): Promise<void> }>
  /** Verifies the token of an open tunnel again. */
  readonly recheck: (authorization: string | undefined) => Verdict | Promise<Verdict>
  readonly now: () => number
  readonly responder: Responder
  readonly events: UpstreamEvents
  readonly onInternalError: (requestId: string, error: unknown) => void
}

export interface ForwardedRequest {
  readonly res: SidecarResponse
  readonly admitted: Admitted
  readonly decision: ServiceDecision
  readonly upstream: Upstream
}

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /** The head of a final response. `seconds`: since the request's start. */
  onResponse(status: number, seconds: number): void
}

/** `serviceNotReady` for the other failures, which a later attempt may not meet. */
const ERROR_OF: Readonly<Partial<Record<UpstreamFailure, PublicError>>> = {
  client_aborted: ERRORS.malformedRequest,
  client_idle: ERRORS.requestTimeout,
  http_protocol_error: ERRORS.internalError,
  proxy_internal_error: ERRORS.internalError,
}

/** The upstream is not there: it may be shutting down, and its replica with it. */
const NOT_THERE: ReadonlySet<UpstreamFailure> = new Set([
  'connection_refused',
  'connection_terminated',
  'connection_timeout',
  'destination_ip_unroutable',
  'dns_error',
  'http_response_incomplete',
])

/** Refuses a request of whose response nothing has been sent; of another one, records why it failed. */
export function refuseFailed(responder: Responder, res: SidecarResponse, failure: UpstreamFailure): void {
  const isOfClient = isClientFailure(failure)
  responder.refuse(res, failure, ERROR_OF[failure] ?? ERRORS.serviceNotReady, {
    // RFC 9209 has one name for all errors of the client.
    errorType: isOfClient ? 'http_request_error' : failure,
    // The client should connect again, perhaps to another replica, before its next request.
    close: isOfClient || NOT_THERE.has(failure),
  })
}
