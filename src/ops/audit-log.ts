/**
 * The audit log: a line for each login, logout, link and reload.
 * Lines name only accounts and access keys that exist: any other name is text that a client chose.
 */
import { type Logger, loggable } from '../base/log.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { ApiEvent, RecordEvent } from '../endpoints/api-events.ts'
import type { ReloadResult } from '../reload/reloadable.ts'
import type { CertificateName } from '../tls/certificates.ts'
import type { OnRequestEnd } from './access-log.ts'
import { LineSampling } from './line-sampling.ts'
import { LinkUses } from './link-uses.ts'
import type { Metrics } from './metrics.ts'
import { traceIdOf } from './traceparent.ts'

export type Auditor = ReturnType<typeof createAuditor>

export function createAuditor(metrics: Pick<Metrics, 'onEvent' | 'onReload'>, log: Logger, isOn: boolean) {
  const linkUses = new LinkUses()
  const failedLogins = new LineSampling<object>((line, sampled) => log.info({ ...line, sampled }, 'audit'))
  /** `subject`: that of a source (`ReloadSubject`), or of a room. */
  const recordReload = (subject: string, result: ReloadResult, certificate?: CertificateName) => {
    metrics.onReload(subject, result, certificate)
    if (isOn) {
      log.info({ event: 'reload', subject, outcome: result } satisfies Line, 'audit')
    }
  }
  const recordEvent: RecordEvent = (req, what) => {
    metrics.onEvent(what)
    if (!isOn) {
      return
    }
    if (what.event === 'login_failed') {
      failedLogins.add(() => lineOf(req, what))
    } else {
      log.info(lineOf(req, what), 'audit')
    }
  }
  /** A link has been used once its request has passed to the upstream, or forward auth has approved it. */
  const recordLinkUse: OnRequestEnd = (req, { reason }) => {
    const { linkId, firstByteMs } = req.context
    if (!isOn || linkId === undefined) {
      return
    }
    const hasPassed = reason === undefined || firstByteMs !== undefined
    if (hasPassed && linkUses.isFirst(linkId, req.clientAddress)) {
      log.info(lineOf(req, { event: 'link_used', linkId }), 'audit')
    }
  }
  return { recordReload, recordEvent, recordLinkUse, flush: () => failedLogins.flush() }
}

type AuditEvent = ApiEvent | { readonly event: 'link_used'; readonly linkId: string }
type Line = Partial<Record<AuditField, string | undefined>>

const lineOf = (req: SidecarRequest, what: AuditEvent) => ({
  ...auditLine(req, what),
  ...req.context.logFields,
})

/** The fields of a line beside `level`, `time` and `msg`. */
export type AuditField = keyof ReturnType<typeof auditLine> | 'subject'

function auditLine({ context, clientAddress, headers }: SidecarRequest, what: AuditEvent) {
  const { id, identityForLog: identity } = context
  return {
    event: what.event,
    reason: what.event === 'login_failed' ? what.reason : undefined,
    outcome: what.event === 'login_failed' ? undefined : 'ok',
    account: text(identity?.accountId),
    accessKey: text(identity?.accessKey),
    tokenId: text(identity?.tokenId),
    linkId: 'linkId' in what ? what.linkId : undefined,
    method: 'method' in what && what.method !== 'token' ? what.method : undefined,
    secretUsed: what.event === 'login' && what.usedPreviousSecret ? 'previous' : undefined,
    target: what.event === 'link_created' ? text(withoutQuery(what.target)) : undefined,
    client: clientAddress,
    requestId: id,
    traceId: traceIdOf(headers['traceparent']),
  }
}

/** A query may hold a secret. */
const withoutQuery = (target: string) => target.replace(/[?#].*/s, '')

const text = (value: string | undefined) => value && loggable(value)
