/** The problems of the sidecar in words, worst first, for the head line and the title of the status page. */
import type { IssueFailure } from '../credentials/throttles.ts'
import { sum, type Windows } from './samples.ts'
import type { Status } from './status.ts'

const FAILING_CRITICAL = 0.05
const CERTIFICATE_WARNING_DAYS = 14
const CERTIFICATE_CRITICAL_DAYS = 2
const KEY_WARNING_DAYS = 90
const ISSUER_WARNING_SECONDS = 300
const DAY_SECONDS = 86_400
/** Fewer may be one person's typing mistakes. */
const MANY_LOGINS = 5
const MANY_TOKENS = 20
/** Reasons for refusing tokens that were good once; strangers can cause the others. */
const ONCE_GOOD: ReadonlySet<string> = new Set(['expired', 'revoked', 'claims', 'scope', 'unavailable'])

/** Outcomes of an unreachable upstream. */
const UNREACHABLE = /^(?:connection_refused|connection_timeout|dns_error|destination_)/

export function statusProblems(windows: Windows, { checks, requests, upstreams }: Status) {
  const { at, tenMinutes, recently, values } = windows
  const problems: { readonly severity: 'critical' | 'warning'; readonly text: string }[] = []
  const add = (isCritical: boolean, text: string) =>
    problems.push({ severity: isCritical ? 'critical' : 'warning', text })
  const critical = (text: string) => add(true, text)
  const warning = (text: string) => add(false, text)
  const now = `in ${Math.round(recently.seconds)} s`

  if (checks.some(({ state }) => state === 'draining')) {
    const inFlight = values.total('requests_in_flight')
    warning(`Draining: ${inFlight} request${inFlight === 1 ? '' : 's'} in flight`)
  }
  for (const { prefix: upstream, state, failedNow, lastFault, serverErrorRatio } of upstreams) {
    const queueFull = recently.total('upstream_requests_total', {
      upstream,
      outcome: 'connection_limit_reached',
    })
    const outcome = lastFault?.outcome ?? ''
    const failure = UNREACHABLE.test(outcome) ? 'is unreachable' : 'fails'
    if (queueFull > 0)
      critical(`Upstream ${upstream} is overloaded: ${queueFull} requests refused ${now}, the queue is full`)
    else if (state === 'failing')
      critical(`Upstream ${upstream} ${failure}: ${outcome}, last ${lastFault?.secondsAgo} s ago`)
    else if (failedNow > 0) warning(`Upstream ${upstream} fails at times: ${outcome}`)
    if (serverErrorRatio)
      add(
        serverErrorRatio >= FAILING_CRITICAL,
        `Upstream ${upstream} responds with 5xx to ${percentOf(serverErrorRatio)} % of requests ${now}`,
      )
  }

  const failedLogins = (reason: IssueFailure) => recently.total('token_issue_failures_total', { reason })
  const faultyLogins = failedLogins('unavailable') + failedLogins('internal')
  const isDatabaseDown = checks.some(({ state }) => state === 'database down, last snapshot active')
  if (isDatabaseDown) critical('The credentials database is down: no logins; token checks use its last state')
  else if (faultyLogins > 0) critical(`Logins fail: ${faultyLogins} ${now}, by a fault of this side`)
  const rejected = failedLogins('rejected')
  if (recently.total('tokens_issued_total') === 0 && rejected >= MANY_LOGINS)
    warning(`Every login fails: ${rejected} rejected and none accepted ${now}`)

  const tokenChecks = recently.by('token_checks_total', 'reason')
  const refused = [...tokenChecks].filter(([reason, count]) => ONCE_GOOD.has(reason) && count > 0)
  if (tokenChecks.get('ok') === 0 && sum(new Map(refused)) >= MANY_TOKENS) {
    const reasons = refused.map(([reason, count]) => `${count} ${reason}`).join(', ')
    critical(`Every token is refused: ${reasons} ${now}`)
  }

  const droppedConnections = recently.total('client_connections_dropped_total')
  if (droppedConnections > 0)
    critical(`${droppedConnections} connections closed ${now}: limits.connections are open`)
  const droppedLines = tenMinutes.total('log_lines_dropped_total')
  if (droppedLines > 0) warning(`${droppedLines} log lines lost in ${Math.ceil(tenMinutes.seconds / 60)} min`)
  const unready = checks.filter(({ ok, state }) => !ok && state !== 'draining').map(({ name }) => name)
  if (unready.length > 0) critical(`Not ready: ${unready.join(', ')}`)
  const { failingRatio } = requests
  if (failingRatio)
    add(
      failingRatio >= FAILING_CRITICAL,
      `${percentOf(failingRatio)} % of forwarded requests fail (5xx) ${now}`,
    )

  const certificateEnds = values.by('certificate_not_after_timestamp_seconds', 'certificate')
  for (const [certificate, endSeconds] of certificateEnds) {
    const secondsLeft = endSeconds - at / 1000
    const days = Math.floor(secondsLeft / DAY_SECONDS)
    if (days >= CERTIFICATE_WARNING_DAYS) continue
    const isCritical = days < CERTIFICATE_CRITICAL_DAYS
    const left = isCritical ? `${Math.floor(secondsLeft / 3600)} h` : `${days} d`
    const end = secondsLeft < 0 ? 'has expired' : `expires in ${left}`
    add(isCritical, `Certificate ${certificate} ${end}`)
  }
  for (const [subject, failing] of values.by('reload_failing', 'subject'))
    if (failing > 0 && !(isDatabaseDown && subject === 'credentials'))
      warning(`The newest ${subject} cannot be used; the last good version is active`)
  for (const [issuer, age] of values.by('jwks_age_seconds', 'issuer'))
    if (age > ISSUER_WARNING_SECONDS)
      warning(`No good keys from ${issuer} for more than 5 min; the last ones are active`)
  for (const [kid, age] of values.by('signing_key_age_seconds', 'kid'))
    if (age > KEY_WARNING_DAYS * DAY_SECONDS)
      warning(`Signing key ${kid} is older than ${KEY_WARNING_DAYS} d`)
  if (values.total('enforcing') === 0) warning('Report mode: refused tokens are forwarded')
  return problems.sort((a, b) => a.severity.localeCompare(b.severity))
}

const percentOf = (ratio: number) => (ratio < 0.001 ? '< 0.1' : String(Number((ratio * 100).toPrecision(2))))
