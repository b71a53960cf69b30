/** An upstream, and a request that is forwarded to it. */
import type { Admitted } from '../gate/admission.ts'
import type { ServiceDecision } from '../gate/decide.ts'
import type { UpstreamOutcome } from '../http/upstream-failures.ts'
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
