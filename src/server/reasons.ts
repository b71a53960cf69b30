/**
 * Why a request failed or was refused: the field `reason` of the access log. Closed sets, never client input.
 */
import type { ClientFailure, UpstreamFault } from '../http/proxy-errors.ts'
import type { RefusalReason } from '../token/caller.ts'

/** Why no token was issued; the label `reason` of `auth_sidecar_token_issue_failures_total`. */
export const ISSUE_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const

export type IssueFailure = (typeof ISSUE_FAILURES)[number]

export type Reason =
  | RefusalReason
  | IssueFailure
  | UpstreamFault
  | ClientFailure
  | 'admission'
  | 'upgrade'
  | 'method'
  | 'drain_deadline'
