/**
 * What is counted, and under which names.
 *
 * Labels come from closed sets: never a path, an account or a token. Counting a request is a few additions;
 * the rest is done when somebody scrapes.
 *
 * @module
 */
import { Registry } from 'prom-client'
import { UPSTREAM_OUTCOMES, type UpstreamOutcome } from '../forward/upstream-fault.ts'
import type { Route } from '../gate/routes.ts'
import { ISSUE_FAILURES, type IssueFailure } from '../http/token-endpoint.ts'
import type { VerificationKey } from '../keys/key-ring.ts'
import { REJECT_REASONS, type RejectReason } from '../token/verdict.ts'
import { registerProcessMetrics } from './process-metrics.ts'
import { type Aggregator, registerSeries, SecondsTally, WordTally } from './tally.ts'

const ROUTES: readonly Route[] = ['token_issue', 'token_check', 'proxy', 'public']
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const
const METHOD_STEP = METHODS.length + 1
const ROUTE_STEP = ROUTES.length
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** Numbers that others keep and a scrape reads. */
export interface MetricSources {
  readonly cache: () => { hits: number; misses: number; evictions: number; size: number }
  readonly listener: () => {
    readonly inFlight: number
    readonly connections: number
    readonly droppedConnections: number
  }
  /** The key that signs; none in a sidecar that only verifies. */
  readonly signingKey: () => Pick<VerificationKey, 'kid' | 'createdAt'> | undefined
  /** For how many seconds tokens of each key may still live. */
  readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  /** Revocations in force. */
  readonly revocations: () => number
  /** The connections to each upstream, and the requests that wait for one. */
  readonly pools: () => readonly {
    readonly upstream: string
    readonly connections: number
    readonly queued: number
  }[]
  /** What `/readyz` says. */
  readonly ready: () => boolean
  /** Log lines lost. */
  readonly logLinesDropped: () => number
}

/** Everything that is counted as it happens. */
export interface Metrics {
  readonly registry: Registry
  /** A request is over. `seconds`: from its head to the end of its response. */
  onRequest(route: Route, method: string | undefined, status: number, seconds: number): void
  onTokenCheck(reason: 'ok' | RejectReason): void
  onTokenIssued(): void
  onIssueFailure(reason: IssueFailure): void
  onUpstreamOutcome(upstream: string, outcome: UpstreamOutcome): void
  onFirstByte(upstream: string, seconds: number): void
  onBytes(direction: 'in' | 'out', bytes: number): void
}

/** What the metrics are made of. */
export interface MetricsOptions {
  readonly version: string
  /** Prefixes of the upstreams. */
  readonly upstreams: readonly string[]
  readonly sources: MetricSources
  /** Epoch milliseconds. */
  readonly now: () => number
}

/** Makes the registry and what feeds it. */
export function createMetrics({ version, upstreams, sources, now }: MetricsOptions): Metrics {
  const registry = new Registry()
  registerProcessMetrics(registry)

  const requests = new Map<number, { labels: Record<string, string>; value: number }>()
  const durations = new Map(ROUTES.map((route) => [route, new SecondsTally(SECONDS)]))
  const checks = new WordTally<'ok' | RejectReason>(['ok', ...REJECT_REASONS])
  const failures = new WordTally<IssueFailure>(ISSUE_FAILURES)
  const outcomes = new Map(upstreams.map((upstream) => [upstream, new WordTally(UPSTREAM_OUTCOMES)]))
  const firstBytes = new Map(upstreams.map((upstream) => [upstream, new SecondsTally(SECONDS)]))
  const bytes = new WordTally<'in' | 'out'>(['in', 'out'])
  let issued = 0

  const counter = (name: string, help: string, series: Parameters<typeof registerSeries>[2]) =>
    registerSeries(registry, { name, help, type: 'counter' }, series)
  const gauge = (
    name: string,
    help: string,
    aggregator: Aggregator,
    series: Parameters<typeof registerSeries>[2],
  ) => registerSeries(registry, { name, help, type: 'gauge', aggregator }, series)
  const histogram = (name: string, help: string, label: string, tallies: ReadonlyMap<string, SecondsTally>) =>
    registerSeries(registry, { name, help, type: 'histogram' }, () =>
      [...tallies].flatMap(([value, tally]) => tally.series(name, { [label]: value })),
    )

  counter('auth_sidecar_requests_total', 'Requests by route, method and status.', () => [
    ...requests.values(),
  ])
  histogram(
    'auth_sidecar_request_duration_seconds',
    'Seconds from the request head to the end of the response.',
    'route',
    durations,
  )
  gauge(
    'auth_sidecar_requests_in_flight',
    'Requests that have been started and not answered yet.',
    'sum',
    () => [{ labels: {}, value: sources.listener().inFlight }],
  )
  gauge('auth_sidecar_client_connections', 'Open connections of clients.', 'sum', () => [
    { labels: {}, value: sources.listener().connections },
  ])
  counter(
    'auth_sidecar_client_connections_dropped_total',
    'Connections closed at once because limits.connections were open.',
    () => [{ labels: {}, value: sources.listener().droppedConnections }],
  )
  counter('auth_sidecar_token_checks_total', 'Token checks by result and reason.', () =>
    [...checks.entries()].map(([reason, value]) => ({
      labels: { result: reason === 'ok' ? 'accepted' : 'rejected', reason },
      value,
    })),
  )
  counter('auth_sidecar_tokens_issued_total', 'Tokens issued.', () => [{ labels: {}, value: issued }])
  counter('auth_sidecar_token_issue_failures_total', 'Logins that ended without a token, by reason.', () =>
    [...failures.entries()].map(([reason, value]) => ({ labels: { reason }, value })),
  )
  counter('auth_sidecar_token_cache_hits_total', 'Token checks answered from the cache.', () => [
    { labels: {}, value: sources.cache().hits },
  ])
  counter('auth_sidecar_token_cache_misses_total', 'Token checks that the cache could not answer.', () => [
    { labels: {}, value: sources.cache().misses },
  ])
  counter('auth_sidecar_token_cache_evictions_total', 'Tokens dropped from the full cache.', () => [
    { labels: {}, value: sources.cache().evictions },
  ])
  gauge('auth_sidecar_token_cache_entries', 'Tokens in the cache.', 'sum', () => [
    { labels: {}, value: sources.cache().size },
  ])
  counter('auth_sidecar_upstream_requests_total', 'Forwarded requests by upstream and outcome.', () =>
    [...outcomes].flatMap(([upstream, tally]) =>
      [...tally.entries()].map(([outcome, value]) => ({ labels: { upstream, outcome }, value })),
    ),
  )
  histogram(
    'auth_sidecar_upstream_response_seconds',
    'Seconds from the request head to the head of the upstream response.',
    'upstream',
    firstBytes,
  )
  counter('auth_sidecar_transferred_bytes_total', 'Body bytes from (in) and to (out) clients.', () =>
    [...bytes.entries()].map(([direction, value]) => ({ labels: { direction }, value })),
  )
  gauge(
    'auth_sidecar_upstream_connections',
    'Connections to the upstream, those being made included.',
    'sum',
    () => sources.pools().map(({ upstream, connections }) => ({ labels: { upstream }, value: connections })),
  )
  gauge('auth_sidecar_upstream_queue', 'Requests that wait for a connection to the upstream.', 'sum', () =>
    sources.pools().map(({ upstream, queued }) => ({ labels: { upstream }, value: queued })),
  )
  gauge('auth_sidecar_signing_key_age_seconds', 'Seconds since the key that signs was made.', 'max', () => {
    const key = sources.signingKey()
    if (key === undefined) return []
    return [{ labels: { kid: key.kid }, value: Math.max(0, Math.floor(now() / 1000) - key.createdAt) }]
  })
  gauge(
    'auth_sidecar_key_token_lifetime_seconds',
    'Seconds for which tokens of the key may still live.',
    'max',
    () => sources.tokenLifetimes().map(({ kid, seconds }) => ({ labels: { kid }, value: seconds })),
  )
  gauge('auth_sidecar_revocations', 'Revocations in force.', 'max', () => [
    { labels: {}, value: sources.revocations() },
  ])
  counter('auth_sidecar_log_lines_dropped_total', 'Log lines lost because nobody read them in time.', () => [
    { labels: {}, value: sources.logLinesDropped() },
  ])
  gauge(
    'auth_sidecar_ready',
    '1 while requests are let in and everything they need is loaded, else 0.',
    'min',
    () => [{ labels: {}, value: sources.ready() ? 1 : 0 }],
  )
  gauge('auth_sidecar_build_info', 'Version of the sidecar and of Node.', 'max', () => [
    { labels: { version, node: process.version }, value: 1 },
  ])

  return {
    registry,
    onRequest(route, method, status, seconds) {
      const methodAt = (METHODS as readonly (string | undefined)[]).indexOf(method)
      // One number for the three labels: a text made of them would be made, and hashed, for each request.
      const key = (status * METHOD_STEP + methodAt + 1) * ROUTE_STEP + ROUTES.indexOf(route)
      let counted = requests.get(key)
      if (counted === undefined) {
        const labels = { route, method: METHODS[methodAt] ?? 'other', status: String(status) }
        counted = { labels, value: 0 }
        requests.set(key, counted)
      }
      counted.value++
      durations.get(route)?.observe(seconds)
    },
    onTokenCheck: (reason) => checks.add(reason),
    onTokenIssued: () => {
      issued++
    },
    onIssueFailure: (reason) => failures.add(reason),
    onUpstreamOutcome: (upstream, outcome) => outcomes.get(upstream)?.add(outcome),
    onFirstByte: (upstream, seconds) => firstBytes.get(upstream)?.observe(seconds),
    onBytes: (direction, amount) => bytes.add(direction, amount),
  }
}
