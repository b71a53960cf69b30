/**
 * The state of the sidecar, as the status page and `/status.json` show it.
 * In: metrics, readiness, some settings. Out: problems, current rates, counts of ten minutes. Nothing in it is secret.
 */

import type { Config } from '../config/config.ts'
import type { DatabaseState } from '../credentials/postgres/database.ts'
import {
  type AccessFailure,
  isClientFailure,
  type LoginFailure,
  UPSTREAM_OUTCOMES,
  type UpstreamOutcome,
} from '../failures.ts'
import type { RouteLabel } from '../gate/route.ts'
import { withoutPath } from '../http/hosts.ts'
import { VERSION } from '../version.ts'
import { type Growth, rounded, sum, type Windows } from './samples.ts'

/** Without a request for so long nothing is known of an upstream that failed. */
const FAILURE_SECONDS = 60

const FORWARDED: readonly RouteLabel[] = ['proxy', 'link', 'public']
const FAILING = { route: FORWARDED, status: /^5/ }
const REFUSED = { result: 'rejected' }
/** Not caused by the client. */
const FAILED = UPSTREAM_OUTCOMES.filter((outcome) => outcome !== 'ok' && !isClientFailure(outcome))
const UNREACHABLE: ReadonlySet<string> = new Set<UpstreamOutcome>([
  'connection_refused',
  'connection_timeout',
  'dns_error',
  'destination_not_found',
  'destination_ip_unroutable',
])

/** A condition under which requests are accepted. `/readyz` shows it as a check, with the details that an owner adds. */
export interface ReadyCondition {
  readonly name: string
  readonly ok: boolean
  readonly state?: DatabaseState | 'draining' | `${number} of ${number}` | undefined
}

export type StatusConfig = Pick<Config, 'upstreams' | 'credentials' | 'cache'>

export type Status = ReturnType<typeof statusOf>

export function statusOf(config: StatusConfig, conditions: readonly ReadyCondition[], windows: Windows) {
  const state = stateOf(config, conditions, windows)
  return { problems: alarmsOf(windows, state), ...state }
}

function stateOf(config: StatusConfig, checks: readonly ReadyCondition[], windows: Windows) {
  const { at, tenMinutes, recently, values } = windows
  const { file, postgres } = config.credentials
  const cacheHits = tenMinutes.total('token_cache_hits_total')
  return {
    time: new Date(at).toISOString(),
    version: VERSION,
    node: process.version,
    uptimeSeconds: Math.floor(process.uptime()),
    ready: checks.every(({ ok }) => ok),
    enforcing: values.total('enforcing') !== 0,
    checks,
    /** `seconds`: of the counts. `nowSeconds`: of the rates. */
    window: { seconds: rounded(tenMinutes.seconds), nowSeconds: rounded(recently.seconds) },
    requests: requestsIn(windows),
    rejections: {
      perSecond: recently.rate('token_checks_total', REFUSED),
      count: tenMinutes.total('token_checks_total', REFUSED),
      byReason: Object.fromEntries(tenMinutes.by('token_checks_total', 'reason', REFUSED)),
    },
    latency: recently.percentiles('request_duration_seconds'),
    cache: {
      hitRatio: ratioOf(cacheHits, cacheHits + tenMinutes.total('token_cache_misses_total')),
      entries: values.total('token_cache_entries'),
      capacity: config.cache.maxTokens,
    },
    logins: {
      issued: tenMinutes.total('tokens_issued_total'),
      linksIssued: tenMinutes.total('links_issued_total'),
      failedByReason: Object.fromEntries(tenMinutes.by('token_issue_failures_total', 'reason')),
    },
    ...trustIn(windows),
    upstreams: config.upstreams.map(({ prefix, url }) => ({
      prefix,
      address: withoutPath(url),
      ...upstreamIn(windows, prefix),
    })),
    credentials: file ? 'file' : postgres ? 'PostgreSQL' : 'none',
    process: {
      cpuRatio: recently.rate('process_cpu_seconds_total'),
      rssBytes: values.total('process_resident_memory_bytes'),
    },
    series: seriesIn(windows),
  }
}

function requestsIn({ tenMinutes, recently, values }: Windows) {
  const failing = recently.total('requests_total', FAILING)
  return {
    perSecond: recently.rate('requests_total'),
    count: tenMinutes.total('requests_total'),
    byStatus: Object.fromEntries(tenMinutes.by('requests_total', 'status')),
    failing: tenMinutes.total('requests_total', FAILING),
    // Of forwarded requests alone: refused ones would hide that all others fail.
    failingRatio: ratioOf(failing, Math.max(failing, recently.total('upstream_requests_total'))),
    inFlight: values.total('requests_in_flight'),
    connections: values.total('client_connections'),
  }
}

function trustIn({ values }: Windows) {
  const signers = values.by('signing_key_age_seconds', 'kid')
  const keySetAges = values.by('jwks_age_seconds', 'issuer')
  return {
    keys: [...values.by('key_token_lifetime_seconds', 'kid')].map(([kid, tokensLiveSeconds]) => ({
      kid,
      ageSeconds: signers.get(kid) ?? null, // only the key that signs has one
      tokensLiveSeconds,
    })),
    keySets: [...values.by('jwks_fetches_total', 'issuer').keys()].map((issuer) => ({
      issuer,
      ageSeconds: keySetAges.get(issuer) ?? null,
    })),
    certificates: [...values.by('certificate_not_after_timestamp_seconds', 'certificate')].map(
      ([certificate, seconds]) => ({ certificate, expiresAt: new Date(seconds * 1000).toISOString() }),
    ),
    revocations: values.total('revocations'),
    reloads: [...values.by('reload_last_good_timestamp_seconds', 'subject')].map(([subject, seconds]) => ({
      subject,
      failing: values.total('reload_failing', { subject }) > 0,
      lastGoodAt: new Date(seconds * 1000).toISOString(),
    })),
  }
}

const requestsTo = (upstream: string, growth: Growth, outcome: readonly UpstreamOutcome[]) =>
  growth.total('upstream_requests_total', { upstream, outcome })

function upstreamIn({ at, tenMinutes, recently, steps, values }: Windows, upstream: string) {
  const count = tenMinutes.total('upstream_requests_total', { upstream })
  const failedNow = requestsTo(upstream, recently, FAILED)
  const okAt = steps.findLast((step) => requestsTo(upstream, step, ['ok']) > 0)?.at ?? 0
  const failing = steps.findLast((step) => requestsTo(upstream, step, FAILED) > 0)
  const isDown = failing && failing.at > Math.max(okAt, at - FAILURE_SECONDS * 1000)
  const failures = failing?.by('upstream_requests_total', 'outcome', { upstream, outcome: FAILED }) ?? []
  const [mostFrequent] = [...failures].sort(([, a], [, b]) => b - a)
  const responses = recently.by('upstream_responses_total', 'class', { upstream })
  const serverErrorRatio = ratioOf(responses.get('5xx') ?? 0, sum(responses))
  return {
    state: isDown ? 'failing' : failedNow > 0 || serverErrorRatio ? 'degraded' : count > 0 ? 'ok' : 'idle',
    count,
    failed: requestsTo(upstream, tenMinutes, FAILED),
    failedNow,
    serverErrors: tenMinutes.total('upstream_responses_total', { upstream, class: '5xx' }),
    serverErrorRatio,
    lastFault:
      failing && mostFrequent
        ? { outcome: mostFrequent[0], secondsAgo: Math.floor((at - failing.at) / 1000) }
        : null,
    firstByte: tenMinutes.percentiles('upstream_response_seconds', { upstream }),
    connections: values.total('upstream_connections', { upstream }),
    queued: values.total('upstream_queue', { upstream }),
  }
}

function seriesIn({ steps, tenMinutes }: Windows) {
  const drawn = steps.slice(0, -1) // the last step may be too short for a rate
  const latencies = drawn.map((step) => step.percentiles('request_duration_seconds'))
  const reasons = [...tenMinutes.by('token_checks_total', 'reason', REFUSED).keys()]
  return {
    times: drawn.map(({ at }) => Math.round(at / 1000)),
    requestsPerSecond: drawn.map((step) => step.rate('requests_total')),
    failingPerSecond: drawn.map((step) => step.rate('requests_total', FAILING)),
    rejectionsPerSecond: Object.fromEntries(
      reasons.map((reason) => [reason, drawn.map((step) => step.rate('token_checks_total', { reason }))]),
    ),
    p50Seconds: latencies.map(({ p50Seconds }) => p50Seconds),
    p99Seconds: latencies.map(({ p99Seconds }) => p99Seconds),
  }
}

function ratioOf(part: number, total: number): number | null {
  return total > 0 ? rounded(part / total) : null
}

const KEY_WARNING_DAYS = 90
const DAY_SECONDS = 86_400
/** Fewer may be one person's typing mistakes. */
const MANY_LOGINS = 5
const MANY_TOKENS = 20
/** Reasons for refusing tokens that were good once; clients without a good token can cause the others. */
const ONCE_GOOD: ReadonlySet<string> = new Set<AccessFailure>([
  'expired',
  'revoked',
  'claims',
  'scope',
  'unavailable',
])

type Alarm = { readonly severity: 'critical' | 'warning'; readonly text: string }
type State = ReturnType<typeof stateOf>

const critical = (text: string): Alarm => ({ severity: 'critical', text })
const warning = (text: string): Alarm => ({ severity: 'warning', text })
const rated = (ratio: number, text: string) => (ratio >= 0.05 ? critical(text) : warning(text))
const inSeconds = ({ seconds }: Growth) => `in ${Math.round(seconds)} s`

/** The problems in words, worst first, for the head line and the title of the page. */
function alarmsOf(windows: Windows, state: State): Alarm[] {
  const { inFlight } = state.requests
  const isDraining = state.checks.some(({ state }) => state === 'draining')
  const isDatabaseDown = state.checks.some(({ state }) => state === 'database down, last snapshot active')
  return [
    ...(isDraining ? [warning(`Draining: ${inFlight} request${inFlight === 1 ? '' : 's'} in flight`)] : []),
    ...upstreamAlarms(windows, state),
    ...loginAlarms(windows, isDatabaseDown),
    ...requestAlarms(windows, state),
    ...trustAlarms(windows, isDatabaseDown),
  ].sort((a, b) => a.severity.localeCompare(b.severity))
}

function* upstreamAlarms({ recently }: Windows, { upstreams }: State): Generator<Alarm> {
  const now = inSeconds(recently)
  for (const { prefix: upstream, state, failedNow, lastFault, serverErrorRatio } of upstreams) {
    const queueFull = requestsTo(upstream, recently, ['connection_limit_reached'])
    const outcome = lastFault?.outcome ?? ''
    const failure = UNREACHABLE.has(outcome) ? 'is unreachable' : 'fails'
    if (queueFull > 0)
      yield critical(
        `Upstream ${upstream} is overloaded: ${queueFull} requests refused ${now}, the queue is full`,
      )
    else if (state === 'failing')
      yield critical(`Upstream ${upstream} ${failure}: ${outcome}, last ${lastFault?.secondsAgo} s ago`)
    else if (failedNow > 0) yield warning(`Upstream ${upstream} fails at times: ${outcome}`)
    if (serverErrorRatio)
      yield rated(
        serverErrorRatio,
        `Upstream ${upstream} responds with 5xx to ${percentOf(serverErrorRatio)} % of requests ${now}`,
      )
  }
}

function* loginAlarms({ recently }: Windows, isDatabaseDown: boolean): Generator<Alarm> {
  const now = inSeconds(recently)
  const failedLogins = (reason: LoginFailure) => recently.total('token_issue_failures_total', { reason })
  const ownFailures = failedLogins('unavailable') + failedLogins('internal')
  if (isDatabaseDown)
    yield critical('The credentials database is down: no logins; token checks use its last state')
  else if (ownFailures > 0) yield critical(`Logins fail: ${ownFailures} ${now}, by a fault of this side`)
  const rejected = failedLogins('rejected')
  if (recently.total('tokens_issued_total') === 0 && rejected >= MANY_LOGINS)
    yield warning(`Every login fails: ${rejected} rejected and none accepted ${now}`)
}

function* requestAlarms({ tenMinutes, recently }: Windows, { checks, requests }: State): Generator<Alarm> {
  const now = inSeconds(recently)
  const tokenChecks = recently.by('token_checks_total', 'reason')
  const refused = [...tokenChecks].filter(([reason, count]) => ONCE_GOOD.has(reason) && count > 0)
  if (tokenChecks.get('ok') === 0 && sum(new Map(refused)) >= MANY_TOKENS) {
    const reasons = refused.map(([reason, count]) => `${count} ${reason}`).join(', ')
    yield critical(`Every token is refused: ${reasons} ${now}`)
  }
  const droppedConnections = recently.total('client_connections_dropped_total')
  if (droppedConnections > 0)
    yield critical(`${droppedConnections} connections closed ${now}: limits.connections are open`)
  const droppedLines = tenMinutes.total('log_lines_dropped_total')
  if (droppedLines > 0)
    yield warning(`${droppedLines} log lines lost in ${Math.ceil(tenMinutes.seconds / 60)} min`)
  const unready = checks.filter(({ ok, state }) => !ok && state !== 'draining').map(({ name }) => name)
  if (unready.length > 0) yield critical(`Not ready: ${unready.join(', ')}`)
  const { failingRatio } = requests
  if (failingRatio)
    yield rated(failingRatio, `${percentOf(failingRatio)} % of forwarded requests fail (5xx) ${now}`)
}

function* trustAlarms({ at, values }: Windows, isDatabaseDown: boolean): Generator<Alarm> {
  const certificateEnds = values.by('certificate_not_after_timestamp_seconds', 'certificate')
  for (const [certificate, endsAtSeconds] of certificateEnds) {
    const secondsLeft = endsAtSeconds - at / 1000
    const days = Math.floor(secondsLeft / DAY_SECONDS)
    if (days >= 14) continue
    const isCritical = days < 2
    const left = isCritical ? `${Math.floor(secondsLeft / 3600)} h` : `${days} d`
    const end = secondsLeft < 0 ? 'has expired' : `expires in ${left}`
    yield (isCritical ? critical : warning)(`Certificate ${certificate} ${end}`)
  }
  for (const [subject, failing] of values.by('reload_failing', 'subject'))
    if (failing > 0 && !(isDatabaseDown && subject === 'credentials'))
      yield warning(`The newest ${subject} cannot be used; the last good version is active`)
  for (const [issuer, age] of values.by('jwks_age_seconds', 'issuer'))
    if (age > 300) yield warning(`No good keys from ${issuer} for more than 5 min; the last ones are active`)
  for (const [kid, age] of values.by('signing_key_age_seconds', 'kid'))
    if (age > KEY_WARNING_DAYS * DAY_SECONDS)
      yield warning(`Signing key ${kid} is older than ${KEY_WARNING_DAYS} d`)
  if (values.total('enforcing') === 0) yield warning('Report mode: refused tokens are forwarded')
}

const percentOf = (ratio: number) => (ratio < 0.001 ? '< 0.1' : String(Number((ratio * 100).toPrecision(2))))
