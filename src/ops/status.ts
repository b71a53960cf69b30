/**
 * The state for the status page and `/status.json`: current rates, and counts of ten minutes.
 * Nothing in it is secret.
 */
import { hostname } from 'node:os'
import type { AuthCondition } from '../auth/auth-data.ts'
import { isClientFailure, UPSTREAM_OUTCOMES, type UpstreamOutcome } from '../base/errors.ts'
import { VERSION } from '../base/version.ts'
import type { Config } from '../config/config.ts'
import type { RouteLabel } from '../gate/route.ts'
import { withoutPath } from '../http/hosts.ts'
import { type Growth, rounded, sum, type Windows } from './samples.ts'

/** Without new requests, a failed upstream counts as failing for this time. Then its state is unknown. */
const FAILURE_SECONDS = 60

const FORWARDED: readonly RouteLabel[] = ['proxy', 'link', 'public']
const FAILING = { route: FORWARDED, status: /^5/ }
const REFUSED = { result: 'rejected' }
/** The outcomes that the client did not cause. */
const FAILED = UPSTREAM_OUTCOMES.filter((outcome) => outcome !== 'ok' && !isClientFailure(outcome))

/** A condition under which requests are accepted. JSON shows it as one of `checks`. */
export type ReadyCondition =
  | AuthCondition
  | Readonly<{ name: 'accepting' | 'workers'; ok: boolean; state?: RunState }>
type RunState = 'draining' | `${number} of ${number}`

export const areAllMet = (conditions: readonly ReadyCondition[]): boolean => conditions.every(({ ok }) => ok)

export type StatusConfig = Pick<Config, 'name' | 'upstreams' | 'credentials' | 'cache'>

export type Status = ReturnType<typeof statusOf>

export function statusOf(config: StatusConfig, conditions: readonly ReadyCondition[], windows: Windows) {
  const { at, tenMinutes, recently, values } = windows
  const cacheHits = tenMinutes.total('token_cache_hits_total')
  return {
    name: config.name === '' ? hostname() : config.name,
    time: new Date(at).toISOString(),
    version: VERSION,
    node: process.version,
    uptimeSeconds: Math.floor(process.uptime()),
    ready: areAllMet(conditions),
    enforcing: values.total('enforcing') !== 0,
    checks: conditions,
    /** `seconds`: the time that the counts cover. `nowSeconds`: the time that the rates cover. */
    window: { seconds: rounded(tenMinutes.seconds), nowSeconds: rounded(recently.seconds) },
    requests: requestsIn(windows),
    rejections: {
      perSecond: recently.rate('token_checks_total', REFUSED),
      count: tenMinutes.total('token_checks_total', REFUSED),
      byReason: Object.fromEntries(tenMinutes.by('token_checks_total', 'reason', REFUSED)),
      byReasonNow: Object.fromEntries(recently.by('token_checks_total', 'reason', REFUSED)),
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
    credentials: credentialsFrom(config),
    feed: feedIn(config, windows),
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
    // The share of forwarded requests, not of all requests: refused requests would hide that all others fail.
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
    /** The number of credentials that may log in now. */
    activeCredentials: values.total('credentials_active'),
    reloads: [...values.by('reload_last_good_timestamp_seconds', 'subject')].map(([subject, seconds]) => ({
      subject,
      failing: values.total('reload_failing', { subject }) > 0,
      suspect: values.total('reload_suspect', { subject }) > 0,
      lastGoodAt: new Date(seconds * 1000).toISOString(),
    })),
  }
}

const requestsTo = (upstream: string, growth: Growth, outcome: readonly UpstreamOutcome[]) =>
  growth.total('upstream_requests_total', { upstream, outcome })

function upstreamIn({ at, tenMinutes, recently, steps, values }: Windows, upstream: string) {
  const count = tenMinutes.total('upstream_requests_total', { upstream })
  const failedNow = requestsTo(upstream, recently, FAILED)
  const failed = requestsTo(upstream, tenMinutes, FAILED)
  const lastOkAt = () => steps.findLast((step) => requestsTo(upstream, step, ['ok']) > 0)?.at ?? 0
  // To look at every step of hundreds of upstreams would take long.
  const failing = failed === 0 ? undefined : steps.findLast((step) => requestsTo(upstream, step, FAILED) > 0)
  const isDown = failing !== undefined && failing.at > Math.max(lastOkAt(), at - FAILURE_SECONDS * 1000)
  const failures = failing?.by('upstream_requests_total', 'outcome', { upstream, outcome: FAILED }) ?? []
  const [[outcome] = []] = [...failures].sort(([, a], [, b]) => b - a)
  const secondsAgo = Math.floor((at - (failing?.at ?? at)) / 1000)
  const responses = recently.by('upstream_responses_total', 'class', { upstream })
  const serverErrorRatio = ratioOf(responses.get('5xx') ?? 0, sum(responses))
  const isDegraded = failedNow > 0 || Boolean(serverErrorRatio)
  return {
    state: upstreamState(isDown, isDegraded, count),
    count,
    failed,
    failedNow,
    serverErrors: tenMinutes.total('upstream_responses_total', { upstream, class: '5xx' }),
    serverErrorRatio,
    lastFault: outcome === undefined ? null : { outcome, secondsAgo },
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

const ratioOf = (part: number, total: number) => (total > 0 ? rounded(part / total) : null)

function credentialsFrom({ credentials }: StatusConfig) {
  if (credentials.file !== undefined) {
    return 'file'
  }
  if (credentials.feed !== undefined) {
    return 'feed'
  }
  return credentials.postgres === undefined ? 'none' : 'PostgreSQL'
}

/** Null without a feed. `ageSeconds`: null until it has brought a state. */
function feedIn({ credentials }: StatusConfig, { values }: Windows) {
  if (credentials.feed === undefined) {
    return null
  }
  const ageSeconds = values.by('feed_age_seconds', '').get('') ?? null
  return { ageSeconds, maxStaleSeconds: credentials.feed.maxStaleSeconds ?? null }
}

function upstreamState(isDown: boolean, isDegraded: boolean, count: number) {
  if (isDown) {
    return 'failing'
  }
  if (isDegraded) {
    return 'degraded'
  }
  return count > 0 ? 'ok' : 'idle'
}
