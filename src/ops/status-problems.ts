/** The problems of the sidecar in words, worst first, for the head line and the title of the status page. */
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
/** Of tokens that were good once; strangers can send the others. */
const ONCE_GOOD: ReadonlySet<string> = new Set(['expired', 'revoked', 'claims', 'scope', 'unavailable'])

/** Outcomes of an unreachable upstream. */
const UNREACHABLE = /^(?:connection_refused|connection_timeout|dns_error|destination_)/

interface StatusProblem {
  readonly severity: 'critical' | 'warning'
  readonly text: string
}

export function statusProblems(status: Status): StatusProblem[] {
  const problems: StatusProblem[] = []
  const critical = (text: string) => problems.push({ severity: 'critical', text })
  const warning = (text: string) => problems.push({ severity: 'warning', text })
  const now = `in ${Math.round(status.window.nowSeconds)} s`
  const { failingRatio, inFlight, connectionsDropped } = status.requests
  if (status.draining) warning(`Draining: ${inFlight} request${inFlight === 1 ? '' : 's'} in flight`)
  for (const { prefix, state, failedNow, lastFault, serverErrorRatio, queueFull } of status.upstreams) {
    const outcome = lastFault?.outcome ?? ''
    const failure = UNREACHABLE.test(outcome) ? 'is unreachable' : 'fails'
    if (queueFull > 0)
      critical(`Upstream ${prefix} is overloaded: ${queueFull} requests refused ${now}, the queue is full`)
    else if (state === 'failing')
      critical(`Upstream ${prefix} ${failure}: ${outcome}, last ${lastFault?.secondsAgo} s ago`)
    else if (failedNow > 0) warning(`Upstream ${prefix} fails at times: ${outcome}`)
    if (serverErrorRatio) {
      const report = serverErrorRatio >= FAILING_CRITICAL ? critical : warning
      report(`Upstream ${prefix} responds with 5xx to ${percentOf(serverErrorRatio)} % of requests ${now}`)
    }
  }
  const { issuedNow, byReasonNow } = status.logins
  const { unavailable = 0, internal = 0, rejected = 0 } = byReasonNow
  const isDatabaseDown = status.checks.some(({ state }) => state === 'database down, last snapshot active')
  if (isDatabaseDown) critical('The credentials database is down: no logins; token checks use its last state')
  else if (unavailable + internal > 0)
    critical(`Logins fail: ${unavailable + internal} ${now}, by a fault of this side`)
  if (issuedNow === 0 && rejected >= MANY_LOGINS)
    warning(`Every login fails: ${rejected} rejected and none accepted ${now}`)
  const { acceptedNow, byReason } = status.rejections
  const refused = byReason.filter(({ reason, countNow }) => ONCE_GOOD.has(reason) && countNow > 0)
  const count = refused.reduce((sum, { countNow }) => sum + countNow, 0)
  const reasons = refused.map(({ reason, countNow }) => `${countNow} ${reason}`).join(', ')
  if (acceptedNow === 0 && count >= MANY_TOKENS) critical(`Every token is refused: ${reasons} ${now}`)
  if (connectionsDropped > 0)
    critical(`${connectionsDropped} connections closed ${now}: limits.connections are open`)
  const { logLinesDropped } = status.process
  if (logLinesDropped > 0)
    warning(`${logLinesDropped} log lines lost in ${Math.ceil(status.window.seconds / 60)} min`)
  const unready = status.checks.filter(({ ok, state }) => !ok && state !== 'draining').map(({ name }) => name)
  if (unready.length > 0) critical(`Not ready: ${unready.join(', ')}`)
  if (failingRatio) {
    const report = failingRatio >= FAILING_CRITICAL ? critical : warning
    report(`${percentOf(failingRatio)} % of forwarded requests fail (5xx) ${now}`)
  }
  for (const { certificate, secondsLeft } of status.certificates) {
    const days = Math.floor(secondsLeft / DAY_SECONDS)
    const report = days < CERTIFICATE_CRITICAL_DAYS ? critical : warning
    const left = days < CERTIFICATE_CRITICAL_DAYS ? `${Math.floor(secondsLeft / 3600)} h` : `${days} d`
    const end = secondsLeft < 0 ? 'has expired' : `expires in ${left}`
    if (days < CERTIFICATE_WARNING_DAYS) report(`Certificate ${certificate} ${end}`)
  }
  for (const { subject, failing } of status.reloads)
    if (failing && !(isDatabaseDown && subject === 'credentials'))
      warning(`The newest ${subject} cannot be used; the last good version is active`)
  for (const { issuer, ageSeconds } of status.keySets)
    if ((ageSeconds ?? 0) > ISSUER_WARNING_SECONDS)
      warning(`No good keys from ${issuer} for more than 5 min; the last ones are active`)
  for (const { kid, ageSeconds } of status.keys)
    if ((ageSeconds ?? 0) > KEY_WARNING_DAYS * DAY_SECONDS)
      warning(`Signing key ${kid} is older than ${KEY_WARNING_DAYS} d`)
  if (!status.enforcing) warning('Report mode: refused tokens are forwarded')
  return problems.sort((a, b) => a.severity.localeCompare(b.severity))
}

const percentOf = (ratio: number) => (ratio < 0.001 ? '< 0.1' : String(Number((ratio * 100).toPrecision(2))))
