/**
 * The status under which a request is counted and logged once it is over.
 *
 * @module
 */
import { UPSTREAM_OUTCOMES } from '../forward/upstream-fault.ts'
import type { Exchange } from '../http/exchange.ts'

/** Counts a request whose client left before the answer was whole; nobody is sent it. */
const CLIENT_LEFT = 499

/** Counts an answer that broke off and not by the client's doing: what would have been said, had there been time. */
const BROKEN_OFF = 503

/** Why an exchange can be cut by ourselves. */
export const DRAIN_DEADLINE = 'drain_deadline'

const NOT_THE_CLIENT = new Set<string | undefined>([
  ...UPSTREAM_OUTCOMES.filter((outcome) => outcome !== 'ok' && !outcome.startsWith('client_')),
  DRAIN_DEADLINE,
])

/**
 * The status of an exchange that is over.
 *
 * @param finished - whether the response was sent whole; its own status may be that of an object that broke off
 */
export function finalStatus(
  { res, reason, switched }: Pick<Exchange, 'reason' | 'switched'> & { readonly res: { statusCode: number } },
  finished: boolean,
): number {
  if (finished) return res.statusCode
  if (switched) return 101
  return NOT_THE_CLIENT.has(reason) ? BROKEN_OFF : CLIENT_LEFT
}
