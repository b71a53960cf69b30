/** The closed sets of reasons that logs and metrics show. A reason is never text of a client. */
import type { UpstreamFailure } from '../http/upstream-failures.ts'
import type { RefusalReason } from '../token/caller.ts'

/** Why no token was issued; `reason` of `auth_sidecar_token_issue_failures_total`, where a refused login is `rejected`. */
export const ISSUE_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const

export type IssueFailure = (typeof ISSUE_FAILURES)[number]

/** Why a request failed or was refused: the field `reason` of the access log. */
export type Reason =
  | RefusalReason
  | IssueFailure
  | UpstreamFailure
  | 'admission'
  | 'parser'
  | 'upgrade'
  | 'method'
  | 'drain_deadline'
