/**
 * The audit log: one line for each login, logout, link and reload, with a closed set of fields.
 * A line names only accounts and access keys that exist: any other name is text that a client chose.
 */
import type { ReloadSubject } from '../auth-data.ts'
import { type Logger, loggable } from '../base/log.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { Config } from '../config/config.ts'
import type { AuditEvent } from '../endpoints/endpoint.ts'
import { traceIdOf } from '../http/request-ids.ts'
import type { ReloadResult } from '../reload/reloadable.ts'

export function createAuditLog(log: Logger, settings: Pick<Config['log'], 'audit'>) {
  const write = (line: Partial<Record<AuditField, string | undefined>>) => {
    if (settings.audit) log.info(line, 'audit')
  }
  return {
    request: (req: SidecarRequest, what: AuditEvent) => write(lineOf(req, what)),
    reload: (subject: ReloadSubject, outcome: ReloadResult) => write({ event: 'reload', subject, outcome }),
  }
}

/** The fields of a line beside `level`, `time` and `msg`. */
export type AuditField = keyof ReturnType<typeof lineOf> | 'subject'

function lineOf({ context, clientAddress, headers }: SidecarRequest, what: AuditEvent) {
  const { id, identityForLog: identity } = context
  return {
    event: what.event,
    reason: what.event === 'login_failed' ? what.reason : undefined,
    outcome: what.event === 'login_failed' ? undefined : 'ok',
    account: text(identity?.accountId),
    accessKey: text(identity?.accessKey),
    tokenId: text(identity?.tokenId),
    linkId: 'linkId' in what ? what.linkId : undefined,
    client: clientAddress,
    requestId: id,
    traceId: traceIdOf(headers['traceparent']),
  }
}

const text = (value: string | undefined) => value && loggable(value)
