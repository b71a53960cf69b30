/**
 * Counts and logs each request when its response is over (access log), and each login, logout, link and reload (audit log).
 * No line has a token or a query: a query may hold a secret. Lines name only accounts and access keys that exist: any other
 * name is text that a client chose. In forward auth, `method` and `path` are those of the request that a trusted proxy names.
 */
import { randomUUID } from 'node:crypto'
import type { OnReload } from '../auth/auth-sources.ts'
import { type Failure, isClientFailure } from '../base/errors.ts'
import { type Logger, loggable } from '../base/log.ts'
import type { Peer } from '../client/client-address.ts'
import type { UnparsedRefusal } from '../client/connection.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { ApiEvent, RecordEvent } from '../endpoints/api-events.ts'
import type { Metrics } from './metrics.ts'

export function createRequestRecorder(
  metrics: Pick<Metrics, 'onRequest' | 'onBytes'>,
  log: Logger,
  { access }: Pick<Config['log'], 'access'>,
  isAborting: () => boolean,
) {
  return {
    onRequestEnd(res: SidecarResponse): void {
      const { countsAsSent, req } = res
      const { context, method } = req
      const responseMs = res.endedMonotonicMs - context.startedMonotonicMs
      const reason = !countsAsSent && isAborting() ? 'drain_deadline' : context.failure?.reason
      const status = countsAsSent ? res.statusCode : truncatedStatus(reason)
      metrics.onRequest(context.routeLabel, method, status, responseMs / 1000)
      if (context.bytesIn > 0) {
        metrics.onBytes('in', context.bytesIn)
      }
      if (context.bytesOut > 0) {
        metrics.onBytes('out', context.bytesOut)
      }
      // A 404 of an upstream is no error: it is routine in storage.
      const isError = status >= 500 || reason !== undefined || context.wouldRefuse !== undefined
      if (access === 'all' || (access === 'errors' && isError)) {
        log.info(accessLine(req, status, reason), 'request')
      }
    },
    /** Returns the request id of the response. */
    onUnparsed({ error: { status }, cause }: UnparsedRefusal, { address }: Peer): string {
      const requestId = randomUUID()
      metrics.onRequest('proxy', undefined, status, 0)
      if (access !== 'off') {
        log.info({ requestId, status, reason: 'parser' satisfies Failure, cause, client: address }, 'request')
      }
      return requestId
    },
  }
}

/** 499: the client has left, was idle, or sent a malformed body. 503: another failure, or the drain deadline. */
const truncatedStatus = (reason: Failure | undefined): number =>
  reason === undefined || isClientFailure(reason) ? 499 : 503

function accessLine(req: SidecarRequest, status: number, reason: Failure | undefined) {
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
    wouldRefuse: context.wouldRefuse,
    bytesIn: context.bytesIn,
    bytesOut: context.bytesOut,
    // Unlike the metric: with the time of a tunnel, or of the discard of an unread body.
    ms: Math.round((performance.now() - context.startedMonotonicMs) * 1000) / 1000,
    account: text(identity?.accountId),
    tokenId: text(identity?.tokenId),
    client: req.clientAddress,
    traceId: traceIdOf(req.headers['traceparent']),
  }
}

export function createAuditor(metrics: Pick<Metrics, 'onEvent' | 'onReload'>, log: Logger, isOn: boolean) {
  type Line = Partial<Record<AuditField, string | undefined>>
  const write = (line: Line) => {
    isOn && log.info(line, 'audit')
  }
  const recordReload: OnReload = (subject, result, certificate) => {
    metrics.onReload(subject, result, certificate)
    write({ event: 'reload', subject, outcome: result })
  }
  const recordEvent: RecordEvent = (req, what) => {
    metrics.onEvent(what)
    write(auditLine(req, what))
  }
  return { recordReload, recordEvent }
}

/** The fields of a line beside `level`, `time` and `msg`. */
export type AuditField = keyof ReturnType<typeof auditLine> | 'subject'

function auditLine({ context, clientAddress, headers }: SidecarRequest, what: ApiEvent) {
  const { id, identityForLog: identity } = context
  return {
    event: what.event,
    reason: what.event === 'login_failed' ? what.reason : undefined,
    outcome: what.event === 'login_failed' ? undefined : 'ok',
    account: text(identity?.accountId),
    accessKey: text(identity?.accessKey),
    tokenId: text(identity?.tokenId),
    method: 'method' in what && what.method !== 'token' ? what.method : undefined,
    secretUsed: what.event === 'login' && what.usedPreviousSecret ? 'previous' : undefined,
    linkId: 'linkId' in what ? what.linkId : undefined,
    client: clientAddress,
    requestId: id,
    traceId: traceIdOf(headers['traceparent']),
  }
}

const text = (value: string | undefined) => value && loggable(value)

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[^,]*)?$/
const ZEROS = /^0+$/

/**
 * Returns the trace id of a valid `traceparent` (W3C Trace Context, section 3.2). Version `ff` and ids of zeros are invalid.
 * Versions above `00` may add fields. Node joins repeated headers by a comma, which is invalid, too.
 */
export function traceIdOf(traceparent: string | string[] | undefined): string | undefined {
  const [, version = 'ff', traceId = '', parentId = '', more] = TRACEPARENT.exec(String(traceparent)) ?? []
  const isValid = version !== 'ff' && !(version === '00' && more !== undefined)
  return isValid && !ZEROS.test(traceId) && !ZEROS.test(parentId) ? traceId : undefined
}
