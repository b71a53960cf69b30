/**
 * Counts and logs each request when its response is over. It logs no token and no query: a query may hold a secret.
 * `account` is the account of a verified token, or an existing account that a login names.
 * In forward auth, `method` and `path` are those of the request that a trusted proxy names.
 */
import { type Failure, isClientFailure } from '../base/errors.ts'
import { type Logger, loggable } from '../base/log.ts'
import type { Peer } from '../client/client-address.ts'
import type { Refusal } from '../client/connection.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import { newRequestId, traceIdOf } from '../http/request-ids.ts'
import type { Metrics } from './metrics.ts'

export function createAccessLog(
  metrics: Pick<Metrics, 'onRequest' | 'onBytes'>,
  log: Logger,
  { access }: Pick<Config['log'], 'access'>,
  isAborting: () => boolean,
) {
  return {
    onRequestEnd(res: SidecarResponse): void {
      const { isWritten, req } = res
      const { context, method } = req
      const responseMs = res.endedMonotonicMs - context.startedMonotonicMs
      const reason = !isWritten && isAborting() ? 'drain_deadline' : context.failure?.reason
      const status = isWritten ? res.statusCode : truncatedStatus(reason)
      metrics.onRequest(context.routeLabel, method, status, responseMs / 1000)
      if (context.bytesIn > 0) metrics.onBytes('in', context.bytesIn)
      if (context.bytesOut > 0) metrics.onBytes('out', context.bytesOut)
      // A 404 of an upstream is no error: it is routine in storage.
      const isError = status >= 500 || reason !== undefined || context.decision?.wouldRefuse !== undefined
      if (access === 'all' || (access === 'errors' && isError))
        log.info(lineOf(req, status, reason), 'request')
    },
    /** Returns the request id of the response. */
    onParserError({ error: { status }, cause }: Refusal, { address }: Peer): string {
      const requestId = newRequestId()
      metrics.onRequest('proxy', undefined, status, 0)
      if (access !== 'off')
        log.info({ requestId, status, reason: 'parser' satisfies Failure, cause, client: address }, 'request')
      return requestId
    },
  }
}

/** 499: the client closed the connection. 503: the upstream or the drain deadline aborted the response. */
const truncatedStatus = (reason: Failure | undefined): number =>
  reason === undefined || isClientFailure(reason) ? 499 : 503

function lineOf(req: SidecarRequest, status: number, reason: Failure | undefined) {
  const { context, url = '' } = req
  const { identityForLog: identity } = context
  const requested = context.routed?.requested ?? context.admitted
  // A refused target may be an absolute URL with a password.
  const path = requested?.path ?? (url.startsWith('/') ? url.replace(/[?#].*/s, '') : undefined)
  return {
    requestId: context.id,
    method: loggable(requested?.method ?? req.method ?? '', 32),
    path: path && loggable(path),
    route: context.routeLabel,
    status,
    reason,
    cause: context.failure?.cause,
    wouldRefuse: context.decision?.wouldRefuse,
    bytesIn: context.bytesIn,
    bytesOut: context.bytesOut,
    // Unlike the metric: with the time of a tunnel, or of the discard of an unread body.
    ms: Math.round((performance.now() - context.startedMonotonicMs) * 1000) / 1000,
    account: identity?.accountId && loggable(identity.accountId),
    tokenId: identity?.tokenId && loggable(identity.tokenId),
    client: req.clientAddress,
    traceId: traceIdOf(req.headers['traceparent']),
  }
}
