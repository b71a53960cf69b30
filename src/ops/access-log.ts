/**
 * The access log: counts each request when its response is over, and logs those that `log.access` selects.
 * No line has a token or a query: a query may hold a secret.
 * Lines name only accounts and access keys that exist, or that a token proved: any other name is text that
 * a client chose. In forward auth, `method` and `path` are those of the request that a trusted proxy names.
 */
import { randomUUID } from 'node:crypto'
import { type Failure, isClientFailure } from '../base/errors.ts'
import { type Logger, loggable } from '../base/log.ts'
import type { Peer } from '../client/client-address.ts'
import type { UnparsedRefusal } from '../client/connection.ts'
import type { RequestContext, SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { RequestEnd } from '../room.ts'
import { LineSampling } from './line-sampling.ts'
import type { Metrics } from './metrics.ts'
import { traceIdOf } from './traceparent.ts'

/** What else is recorded of each request. It must not throw. */
export type OnRequestEnd = (req: SidecarRequest, end: RequestEnd) => void

interface AccessLogOptions {
  readonly metrics: Pick<Metrics, 'onRequest' | 'onBytes'>
  readonly log: Logger
  readonly settings: Pick<Config['log'], 'access' | 'slowSeconds'>
  readonly isVerbose: () => boolean
  /** Whether the drain deadline has passed. */
  readonly isAborting: () => boolean
  readonly onRequestEnd: readonly OnRequestEnd[]
}

export function createAccessLog(options: AccessLogOptions) {
  const { metrics, log, isAborting } = options
  const { access, slowSeconds } = options.settings
  const sampling = new LineSampling<object>((line, sampled) => log.info({ ...line, sampled }, 'request'))
  const logsAll = () => access === 'all' || options.isVerbose()
  const logsErrors = () => access !== 'off' || options.isVerbose()

  function write(req: SidecarRequest, end: RequestEnd): void {
    if (isStranger(req.context, end.reason)) {
      sampling.add(() => accessLine(req, end))
    } else {
      log.info(accessLine(req, end), 'request')
    }
  }

  function countBytes({ bytesIn, bytesOut }: RequestContext): void {
    if (bytesIn > 0) {
      metrics.onBytes('in', bytesIn)
    }
    if (bytesOut > 0) {
      metrics.onBytes('out', bytesOut)
    }
  }

  return {
    onRequestEnd(res: SidecarResponse): void {
      const { req } = res
      const { context } = req
      const end = endOf(res, isAborting())
      metrics.onRequest(context.routeLabel, req.method, end.status, end.seconds)
      countBytes(context)
      for (const watcher of context.watchers) {
        watcher.onEnd?.(end)
      }
      for (const record of options.onRequestEnd) {
        record(req, end)
      }
      const isUnusual = isError(context, end) || isSlow(context, end, slowSeconds)
      if (logsAll() || (logsErrors() && isUnusual)) {
        write(req, end)
      }
    },
    /** Returns the request id of the response. */
    onUnparsed({ error: { status }, cause, isSilent }: UnparsedRefusal, { address }: Peer): string {
      const requestId = randomUUID()
      metrics.onRequest('proxy', undefined, status, 0)
      if (logsErrors() && !isSilent) {
        sampling.add(() => ({
          requestId,
          status,
          reason: 'parser' satisfies Failure,
          cause,
          client: address,
        }))
      }
      return requestId
    },
    flush: () => sampling.flush(),
  }
}

function endOf({ countsAsSent, statusCode, endedMonotonicMs, req }: SidecarResponse, isAborting: boolean) {
  const { startedMonotonicMs, failure } = req.context
  const reason: Failure | undefined = !countsAsSent && isAborting ? 'drain_deadline' : failure?.reason
  const status = countsAsSent ? statusCode : truncatedStatus(reason)
  return { status, reason, seconds: (endedMonotonicMs - startedMonotonicMs) / 1000 }
}

/**
 * 499: the client has left, was idle, or sent a malformed body. 503: another failure, or the drain deadline.
 */
const truncatedStatus = (reason: Failure | undefined): number =>
  reason === undefined || isClientFailure(reason) ? 499 : 503

/** A 404 of an upstream is no error: it is routine in storage. */
const isError = ({ wouldRefuse, watchers }: RequestContext, { status, reason }: RequestEnd) =>
  status >= 500 ||
  reason !== undefined ||
  wouldRefuse !== undefined ||
  watchers.some(({ mustLog }) => mustLog)

/** The time of a download does not count: it depends on the client and on the size. */
function isSlow({ firstByteMs, queueMs = 0 }: RequestContext, { seconds }: RequestEnd, slowSeconds: number) {
  const toFirstByteMs = firstByteMs ?? seconds * 1000
  return Math.max(toFirstByteMs, queueMs) >= slowSeconds * 1000
}

/** No token proved a caller, and the request failed: any client can send as many of these as it likes. */
const isStranger = ({ isCallerProven }: RequestContext, reason: Failure | undefined) =>
  !isCallerProven && reason !== undefined

const roundedMs = (ms: number | undefined) => ms && Math.round(ms * 1000) / 1000
const text = (value: string | undefined) => value && loggable(value)

/** Names the setting that an operator must change. */
const causeOf = (reason: Failure | undefined) =>
  reason === 'host' ? 'its Host is not in scopes.hosts' : undefined

function accessLine(req: SidecarRequest, { status, reason }: RequestEnd) {
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
    cause: context.failure?.cause ?? causeOf(reason ?? context.wouldRefuse),
    wouldRefuse: context.wouldRefuse,
    bytesIn: context.bytesIn,
    bytesOut: context.bytesOut,
    // Unlike the metric: with the time of a tunnel, or of the discard of an unread body.
    ms: roundedMs(performance.now() - context.startedMonotonicMs),
    upstream: context.upstream,
    queueMs: roundedMs(context.queueMs),
    firstByteMs: roundedMs(context.firstByteMs),
    account: text(identity?.accountId),
    accessKey: text(identity?.accessKey),
    tokenId: text(identity?.tokenId),
    client: req.clientAddress,
    traceId: traceIdOf(req.headers['traceparent']),
    ...context.logFields,
  }
}
