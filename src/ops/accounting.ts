/**
 * Accounting for requests that are over: metrics, bytes, access line.
 *
 * In: an exchange, whose response was sent whole or not, or a request that the parser refused. Each is counted
 * once, under the status that {@link finalStatus} says.
 *
 * @module
 */
import type { PublicError } from '../errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Peer } from '../http/peer.ts'
import { type AccessLogOptions, createAccessLog } from './access-log.ts'
import { DRAIN_DEADLINE, finalStatus } from './final-status.ts'
import type { Metrics } from './metrics.ts'

/** What accounting works with. */
export interface AccountingOptions extends AccessLogOptions {
  readonly metrics: Pick<Metrics, 'onRequest' | 'onBytes'>
  /** The clock of the deadlines, in milliseconds. */
  readonly monotonicNow: () => number
  /** Whether requests are being cut, because the time to drain is over. */
  readonly isCutting: () => boolean
}

/** Accounts for requests. */
export interface Accounting {
  /** For each exchange once, when it is over. `finished`: its response was sent whole. */
  onOver(exchange: Exchange, finished: boolean): void
  /** For each request that the parser refused; no exchange was made of it. */
  onRefused(error: PublicError, requestId: string, peer: Peer): void
}

/** Makes the accounting of a sidecar. */
export function createAccounting({
  metrics,
  monotonicNow,
  isCutting,
  ...logging
}: AccountingOptions): Accounting {
  const accessLog = createAccessLog(logging)
  return {
    onOver(exchange, finished) {
      const ms = monotonicNow() - exchange.startedAt
      if (!finished && isCutting()) exchange.reason = DRAIN_DEADLINE
      const status = finalStatus(exchange, finished)
      metrics.onRequest(exchange.route, exchange.req.method, status, ms / 1000)
      metrics.onBytes('in', exchange.bytesIn)
      metrics.onBytes('out', exchange.bytesOut)
      accessLog(exchange, status, ms)
    },
    onRefused({ status }, requestId, { address }) {
      metrics.onRequest('proxy', undefined, status, 0)
      if (logging.mode === 'off') return
      logging.log.info({ requestId, status, reason: 'parser', client: address }, 'request')
    },
  }
}
