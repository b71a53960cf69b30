/**
 * Counts and logs each login, logout, link and reload: a line with a closed set of fields.
 * A line names only accounts and access keys that exist: any other name is text that a client chose.
 */
import type { OnReload } from '../auth-data.ts'
import { type Logger, loggable } from '../base/log.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { AuditEvent } from '../endpoints/endpoint.ts'
import { traceIdOf } from '../http/request-ids.ts'
import type { Metrics } from './metrics.ts'

export function createAuditLog(metrics: Pick<Metrics, 'onEvent' | 'onReload'>, log: Logger, isOn: boolean) {
  const write = (line: Partial<Record<AuditField, string | undefined>>) => {
    if (isOn) log.info(line, 'audit')
  }
  const reload: OnReload = (subject, outcome, certificate) => {
    metrics.onReload(subject, outcome, certificate)
    write({ event: 'reload', subject, outcome })
  }
  const request = (req: SidecarRequest, what: AuditEvent) => {
    metrics.onEvent(what)
    write(lineOf(req, what))
  }
  return { reload, request }
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
