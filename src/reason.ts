/**
 * Why a request was not answered as its client would wish: the word that stands in its line of the log.
 *
 * @module
 */
import type { UpstreamOutcome } from './forward/upstream-fault.ts'
import type { Refuse } from './gate/decide.ts'
import type { IssueFailure } from './http/token-endpoint.ts'
import type { DRAIN_DEADLINE } from './ops/final-status.ts'

/** One of a closed set of words; never anything that a client sent. */
export type Reason =
  /** The gate refused it: for its token, or for what the request itself was. */
  | Refuse['reason']
  /** The token endpoint did; `method`: it has no such method. */
  | IssueFailure
  | 'method'
  /** It was forwarded, and the upstream or the client ended it early. */
  | Exclude<UpstreamOutcome, 'ok'>
  /** The time to drain was over. */
  | typeof DRAIN_DEADLINE
