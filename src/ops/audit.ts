/**
 * The audit log: one line for each login, logout, link and reload. Fields are a closed set; their values are ours, or
 * known to be: an account or access key that a client names is left out unless it exists.
 */
import type { Config } from '../config/config.ts'
import { traceIdOf } from '../http/request-ids.ts'
import { type Logger, loggable } from '../log.ts'
import type { ReloadResult, ReloadSubject } from '../reload/reloadable.ts'
import type { SidecarRequest } from '../server/context.ts'
import type { AuditedRequest } from '../server/endpoint.ts'

/** The fields of a line beside `level`, `time` and `msg`; each has a row in `docs/operations.md`. */
export interface AuditLine {
  readonly account?: string | undefined
  readonly accessKey?: string | undefined
  readonly tokenId?: string | undefined
  readonly event: AuditedRequest['event'] | 'reload'
  readonly outcome?: ReloadResult
  readonly reason?: string
  readonly subject?: ReloadSubject
  readonly linkId?: string
  readonly client?: string
  readonly requestId?: string
  readonly traceId?: string | undefined
}

export function createAudit(log: Logger, settings: Pick<Config['log'], 'audit'>) {
  const write = (line: AuditLine) => {
    if (settings.audit) log.info(line, 'audit')
  }
  return {
    /** Something that a request did; called once it is done. */
    request(req: SidecarRequest, what: AuditedRequest): void {
      const { id, loggedIdentity: identity } = req.context
      write({
        event: what.event,
        ...(what.event === 'login_failed' ? { reason: what.reason } : { outcome: 'ok' }),
        account: text(identity?.accountId),
        accessKey: text(identity?.accessKey),
        tokenId: text(identity?.tokenId),
        ...('linkId' in what && { linkId: loggable(what.linkId) }),
        client: req.clientAddress,
        requestId: id,
        traceId: traceIdOf(req.headers['traceparent']),
      })
    },
    reload: (subject: ReloadSubject, outcome: ReloadResult) => write({ event: 'reload', subject, outcome }),
  }
}

const text = (value: string | undefined) => value && loggable(value)
