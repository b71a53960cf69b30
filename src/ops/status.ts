/**
 * The state of the sidecar, as the status page and `/status.json` show it.
 * In: metrics, readiness, some settings. Out: current rates, counts of ten minutes. Nothing in it is secret.
 */
import type { Registry } from 'prom-client'
import type { ReadyCheck } from '../auth-data.ts'
import type { Config } from '../config/config.ts'
import type { IssueFailure } from '../server/context.ts'
import { VERSION } from '../version.ts'
import {
  type Growth,
  type MetricsScope,
  rounded,
  Samples,
  statusMetrics,
  sum,
  type Windows,
} from './samples.ts'

const SAMPLE_EVERY_MS = 5000
/** Without a request for so long nothing is known of an upstream that failed. */
const FAULT_SECONDS = 60

const FORWARDED = /^(?:proxy|link)$/
/** 5xx of forwarded requests: "failing" on the dashboard and in the alerts too. */
const FAILING = { route: FORWARDED, status: /^5/ }
const REFUSED = { result: 'rejected' }
/** Outcomes that are a fault of the upstream or of the sidecar. */
const FAULT = /^(?!ok$|client_)/

/** The data of the admin listener: of this process, or collected from workers. */
export interface AdminData {
  readonly checks: () => readonly ReadyCheck[] | Promise<readonly ReadyCheck[]>
  /** A JWK Set (RFC 7517); undefined before a worker has responded. */
  readonly jwks: () => unknown
  readonly registry: (scope: MetricsScope) => Registry | Promise<Registry>
}

type StatusConfig = Pick<Config, 'upstreams' | 'credentials' | 'cache'>

/** Samples the metrics from `start` on. @param now - epoch milliseconds @param onError - called with failed samples */
export function createStatusReporter(
  config: StatusConfig,
  { checks, registry }: Pick<AdminData, 'checks' | 'registry'>,
  now: () => number,
  onError: (error: unknown) => void,
) {
  const startedAt = now()
  const samples = new Samples()
  let timer: NodeJS.Timeout | undefined
  const metrics = async () => statusMetrics(await registry('status'))
  const sample = () =>
    metrics()
      .then((families) => samples.add(families, now()))
      .catch(onError)
  return {
    start(): void {
      void sample()
      timer = setInterval(sample, SAMPLE_EVERY_MS).unref()
    },
    stop: () => clearInterval(timer),
    sample,
    /** Rejects when the metrics cannot be read. */
    report: async () => statusOf(config, startedAt, await checks(), samples.windows(await metrics(), now())),
  }
}

export type Status = ReturnType<typeof statusOf>

function statusOf(config: StatusConfig, startedAt: number, checks: readonly ReadyCheck[], windows: Windows) {
  const { at, tenMinutes, recently, values } = windows
  return {
    time: new Date(at).toISOString(),
    version: VERSION,
    node: process.version,
    startedAt: new Date(startedAt).toISOString(),
    uptimeSeconds: Math.floor((at - startedAt) / 1000),
    ready: checks.every(({ ok }) => ok),
    draining: checks.some(({ state }) => state === 'draining'),
    enforcing: values.total('enforcing') !== 0,
    checks,
    window: { seconds: rounded(tenMinutes.seconds), nowSeconds: rounded(recently.seconds) },
    requests: requestsIn(windows),
    rejections: rejectionsIn(windows),
    latency: latencyByRoute(tenMinutes),
    latencyNow: recently.percentiles('request_duration_seconds'),
    cache: cacheIn(windows, config.cache.maxTokens),
    logins: loginsIn(windows),
    ...trustIn(windows),
    upstreams: config.upstreams.map(({ prefix, url }) => ({
      prefix,
      address: withoutPath(url),
      ...upstreamIn(windows, prefix),
    })),
    credentials: credentialsState(config.credentials, checks),
    process: {
      cpuRatio: recently.rate('process_cpu_seconds_total'),
      rssBytes: values.total('process_resident_memory_bytes'),
      logLinesDropped: tenMinutes.total('log_lines_dropped_total'),
    },
    series: seriesIn(windows),
  }
}

function requestsIn({ tenMinutes, recently, values }: Windows) {
  const failing = recently.total('requests_total', FAILING)
  const asked = recently.total('requests_total', { route: FORWARDED })
  const classes = ['1', '2', '3', '4', '5'].map((digit) => [
    `${digit}xx`,
    tenMinutes.total('requests_total', { status: new RegExp(`^${digit}`) }),
  ])
  return {
    perSecond: recently.rate('requests_total'),
    count: tenMinutes.total('requests_total'),
    byStatus: Object.fromEntries(classes),
    failing: tenMinutes.total('requests_total', FAILING),
    // Of those that were forwarded: refused ones would hide that all others fail.
    failingRatio: share(failing, Math.max(failing, asked - recently.total('token_checks_total', REFUSED))),
    inFlight: values.total('requests_in_flight'),
    connections: values.total('client_connections'),
    connectionsDropped: recently.total('client_connections_dropped_total'),
  }
}

function rejectionsIn({ tenMinutes, recently }: Windows) {
  return {
    perSecond: recently.rate('token_checks_total', REFUSED),
    count: tenMinutes.total('token_checks_total', REFUSED),
    acceptedNow: recently.total('token_checks_total', { reason: 'ok' }),
    byReason: [...tenMinutes.by('token_checks_total', 'reason', REFUSED)].map(([reason, count]) => ({
      reason,
      count,
      countNow: recently.total('token_checks_total', { reason }),
      perSecond: recently.rate('token_checks_total', { reason }),
    })),
  }
}

/** The first is that of all routes. */
function latencyByRoute(growth: Growth) {
  const routes = [...growth.by('request_duration_seconds', 'route').keys()]
  const latency = (route: string, where = {}) => ({
    route,
    count: growth.total('request_duration_seconds', { ...where, le: '+Inf' }),
    ...growth.percentiles('request_duration_seconds', where),
  })
  return [
    latency('all'),
    ...routes.map((route) => latency(route, { route })).filter(({ count }) => count > 0),
  ]
}

function cacheIn({ tenMinutes, values }: Windows, capacity: number) {
  const hits = tenMinutes.total('token_cache_hits_total')
  return {
    hitRatio: share(hits, hits + tenMinutes.total('token_cache_misses_total')),
    entries: values.total('token_cache_entries'),
    capacity,
  }
}

function loginsIn({ tenMinutes, recently }: Windows) {
  const failures = tenMinutes.by('token_issue_failures_total', 'reason')
  const failuresNow: Partial<Record<IssueFailure, number>> = Object.fromEntries(
    recently.by('token_issue_failures_total', 'reason'),
  )
  return {
    issued: tenMinutes.total('tokens_issued_total'),
    linksIssued: tenMinutes.total('links_issued_total'),
    failed: sum(failures),
    byReason: Object.fromEntries(failures),
    issuedNow: recently.total('tokens_issued_total'),
    byReasonNow: failuresNow,
  }
}

/** Keys, certificates and files: what decides on access. */
function trustIn({ at, values }: Windows) {
  const signers = values.by('signing_key_age_seconds', 'kid')
  const keySetAges = values.by('jwks_age_seconds', 'issuer')
  return {
    keys: [...values.by('key_token_lifetime_seconds', 'kid')].map(([kid, tokensLiveSeconds]) => ({
      kid,
      signs: signers.has(kid),
      ageSeconds: signers.get(kid) ?? null,
      tokensLiveSeconds,
    })),
    keySets: [...values.by('jwks_fetches_total', 'issuer').keys()].map((issuer) => ({
      issuer,
      ageSeconds: keySetAges.get(issuer) ?? null,
    })),
    certificates: [...values.by('certificate_not_after_timestamp_seconds', 'certificate')].map(
      ([certificate, seconds]) => ({
        certificate,
        expiresAt: new Date(seconds * 1000).toISOString(),
        secondsLeft: Math.floor(seconds - at / 1000),
      }),
    ),
    revocations: values.total('revocations'),
    reloads: [...values.by('reload_last_good_timestamp_seconds', 'subject')].map(([subject, seconds]) => ({
      subject,
      failing: values.total('reload_failing', { subject }) > 0,
      lastGoodAt: new Date(seconds * 1000).toISOString(),
    })),
  }
}

function upstreamIn({ at, tenMinutes, recently, steps, values }: Windows, upstream: string) {
  const requests = (growth: Growth, outcome: string | RegExp) =>
    growth.total('upstream_requests_total', { upstream, outcome })
  const outcomesIn = (growth: Growth, outcome: RegExp) =>
    [...growth.by('upstream_requests_total', 'outcome', { upstream, outcome })].filter(
      ([, count]) => count > 0,
    )
  const count = requests(tenMinutes, /./)
  const failed = requests(tenMinutes, FAULT)
  const failedNow = requests(recently, FAULT)
  const okAt = steps.findLast((step) => requests(step, 'ok') > 0)?.at ?? 0
  const failing = steps.findLast((step) => requests(step, FAULT) > 0)
  const isDown = failing && failing.at > Math.max(okAt, at - FAULT_SECONDS * 1000)
  const responses = recently.by('upstream_responses_total', 'class', { upstream })
  const serverErrors = responses.get('5xx') ?? 0
  return {
    state: isDown ? 'failing' : failedNow + serverErrors > 0 ? 'degraded' : count > 0 ? 'ok' : 'idle',
    count,
    failed,
    failedNow,
    failedRatio: share(failed, count),
    /** Of the upstream's own responses. */
    serverErrors: tenMinutes.total('upstream_responses_total', { upstream, class: '5xx' }),
    serverErrorRatio: share(serverErrors, sum(responses)),
    queueFull: requests(recently, 'connection_limit_reached'),
    outcomes: Object.fromEntries(outcomesIn(tenMinutes, /./)),
    lastFault: failing
      ? {
          outcome: outcomesIn(failing, FAULT).sort(([, a], [, b]) => b - a)[0]?.[0] ?? '',
          seenAt: new Date(failing.at).toISOString(),
          secondsAgo: Math.floor((at - failing.at) / 1000),
        }
      : null,
    firstByte: tenMinutes.percentiles('upstream_response_seconds', { upstream }),
    connections: values.total('upstream_connections', { upstream }),
    queued: values.total('upstream_queue', { upstream }),
  }
}

/** The lines of the charts. */
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

function credentialsState({ file, postgres }: Config['credentials'], checks: readonly ReadyCheck[]) {
  if (!file && !postgres) return { kind: 'none', state: 'this sidecar only verifies' }
  const check = checks.find(({ name }) => name === 'credentials')
  const state = check?.state ?? (check?.ok ? 'loaded' : 'not loaded')
  return { kind: file ? 'file' : 'PostgreSQL', state }
}

/** Scheme, host and port of an upstream, or the path of its socket: a URL may hold more. */
export function withoutPath(url: string): string {
  if (url.startsWith('unix:')) return url
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}

/** From 0 to 1; null of nothing. */
function share(part: number, total: number): number | null {
  return total > 0 ? rounded(part / total) : null
}
