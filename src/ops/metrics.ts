/**
 * The Prometheus metrics: their names, labels and values. Labels come from closed sets, never a path, an account or a
 * token; their series exist at zero from the first scrape on.
 */
import { type Aggregator, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { ROUTES, type Route } from '../gate/decide.ts'
import type { UpstreamEvents } from '../proxy/transfer.ts'
import {
  STATUS_CLASSES,
  type StatusClass,
  statusClassOf,
  UPSTREAM_OUTCOMES,
  type UpstreamOutcome,
} from '../proxy/upstream-errors.ts'
import { RELOAD_RESULTS, type ReloadResult } from '../reload/reloadable.ts'
import { ISSUE_FAILURES, type IssueFailure } from '../server/reasons.ts'
import { REFUSAL_REASONS, type RefusalReason } from '../token/caller.ts'
import { VERSION } from '../version.ts'

/** Other methods have the label `other`. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** Gauges of prom-client with the name of a counter; `nodejs_active_handles` and its like, by type, add up to them. */
const MISNAMED_METRICS = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`)

/** Every metric, without `auth_sidecar_`, and its help; each has a row in `docs/operations.md`. */
const HELP = {
  build_info: 'Version of the sidecar and of Node.',
  certificate_not_after_timestamp_seconds: 'When the active certificate expires, in epoch seconds.',
  client_connections: 'Open connections of clients.',
  client_connections_dropped_total: 'Connections closed because limits.connections were open.',
  enforcing: '1 while refused tokens are refused, 0 with enforcement: report.',
  jwks_age_seconds: 'Seconds since the issuer last sent a good JWK Set.',
  jwks_fetches_total: 'Fetches of JWK Sets by issuer and result.',
  key_token_lifetime_seconds:
    'Seconds in which tokens signed by the key may be valid, at most: by token.maxLifetimeSeconds. 0: retire it.',
  links_issued_total: 'Links issued.',
  log_lines_dropped_total: 'Log lines dropped because stdout was read too slowly or could not be written.',
  ready: '1 while requests are accepted and everything they need is loaded, else 0.',
  reload_failing: '1 while the newest version cannot be used and an older one is active, else 0.',
  reload_last_good_timestamp_seconds: 'When the active version was loaded, in epoch seconds.',
  reloads_total: 'New versions that became active (ok) or could not be used (failed).',
  request_duration_seconds: 'Seconds from the request head to the end of the response.',
  requests_in_flight: 'Requests that are served or wait, without tunnels.',
  requests_total: 'Requests by route, method and status.',
  revocations: 'Active revocations.',
  signing_key_age_seconds: 'Seconds since the key that signs was created.',
  token_cache_entries: 'Tokens in the cache.',
  token_cache_evictions_total: 'Tokens evicted from the full cache.',
  token_cache_hits_total: 'Token checks answered from the cache.',
  token_cache_misses_total: 'Token checks not answered from the cache.',
  token_checks_total: 'Token checks by result and reason.',
  token_issue_failures_total: 'Logins that ended without a token, by reason.',
  tokens_issued_total: 'Tokens issued.',
  transferred_bytes_total: 'Body bytes from (in) and to (out) clients.',
  upstream_connections: 'Connections to the upstream, also those being opened.',
  upstream_queue: 'Requests that wait for a connection to the upstream.',
  upstream_requests_total: 'Forwarded requests by upstream and outcome.',
  upstream_responses_total: 'Responses by upstream and status class.',
  upstream_response_seconds: 'Seconds from the request head to the head of the upstream response.',
  worker_restarts_total: 'Workers that ended and were replaced.',
  workers: 'Processes that share the data listener, accept connections and respond to the primary.',
}

export type MetricName = keyof typeof HELP

/** The full name, for readers of the metrics. */
export const fullName = (name: MetricName) => `auth_sidecar_${name}`

/** The label `subject`. */
export type ReloadSubject = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Values of other components, read at each scrape. */
export interface MetricSources {
  readonly cache: { hits: number; misses: number; evictions: number; size: number }
  readonly listener: { inFlight: number; connections: number; droppedConnections: number }
  /** The key that signs, created at `createdAt` epoch seconds; undefined in a sidecar that only verifies. */
  readonly signingKey: () => { readonly kid: string; readonly createdAt: number } | undefined
  readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  readonly revocations: () => number
  readonly pools: () => readonly { upstream: string; connections: number; queued: number }[]
  /** Active certificates of our own and when they expire, in epoch milliseconds. */
  readonly certificates: () => readonly { readonly certificate: string; readonly expiresAt: number }[]
  /** `ageSeconds`: absent until there is one. */
  readonly keySets: () => readonly { readonly issuer: string; readonly ageSeconds?: number }[]
  readonly ready: () => boolean
  readonly logLinesDropped: () => number
}

/** The events that are counted, one method for each. */
export interface Metrics {
  readonly registry: Registry
  /** A request is over. `seconds`: from its head to the end of the response. */
  onRequest(route: Route, method: string | undefined, status: number, seconds: number): void
  onTokenCheck(reason: 'ok' | RefusalReason): void
  onTokenIssued(): void
  onLinkIssued(): void
  onIssueFailure(reason: IssueFailure): void
  ofUpstream(prefix: string): UpstreamEvents
  /** Body bytes from (`in`) or to (`out`) a client. */
  onBytes(direction: 'in' | 'out', count: number): void
  /** `part`: one of several under the subject, which is failing while any of them is. */
  onReload(subject: ReloadSubject, result: ReloadResult, part?: string): void
  onFetch(issuer: string, result: ReloadResult): void
  /** Adds the metrics of values that other components have. Called once. */
  readFrom(sources: MetricSources): void
}

export interface MetricsOptions {
  /** Prefixes. */
  readonly upstreams: readonly string[]
  readonly subjects: readonly ReloadSubject[]
  readonly enforcing: boolean
  /** Whose keys are fetched. */
  readonly issuers: readonly string[]
  /** Epoch milliseconds. */
  readonly now: () => number
}

export function createMetrics({ upstreams, subjects, enforcing, issuers, now }: MetricsOptions): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  for (const name of MISNAMED_METRICS) registry.removeSingleMetric(name)
  const create = metricsIn(registry)
  const { counter, series, histogram, gauge } = create

  gauge('enforcing', 'min', () => Number(enforcing))
  new Gauge({ ...create.common('build_info'), labelNames: ['version', 'node'], aggregator: 'max' }).set(
    { version: VERSION, node: process.version },
    1,
  )

  const newRequests = series('requests_total', ['route', 'method', 'status'])
  const requests = memoized((route: Route) =>
    memoized((method: string) => memoized((status: number) => newRequests({ route, method, status }))),
  )
  const newCheck = series('token_checks_total', ['result', 'reason'])
  const checks = memoized((reason: 'ok' | RefusalReason) =>
    newCheck({ result: reason === 'ok' ? 'accepted' : 'rejected', reason }),
  )
  const issued = counter('tokens_issued_total')
  const linksIssued = counter('links_issued_total')
  const failures = counter('token_issue_failures_total', ['reason'])
  const newOutcome = series('upstream_requests_total', ['upstream', 'outcome'])
  const outcomes = memoized((upstream: string) =>
    memoized((outcome: UpstreamOutcome) => newOutcome({ upstream, outcome })),
  )
  const newResponses = series('upstream_responses_total', ['upstream', 'class'])
  const responses = memoized((upstream: string) =>
    memoized((statusClass: StatusClass) => newResponses({ upstream, class: statusClass })),
  )
  const newBytes = series('transferred_bytes_total', ['direction'])
  const bytes = memoized((direction: 'in' | 'out') => newBytes({ direction }))
  const fetches = counter('jwks_fetches_total', ['issuer', 'result'])
  const durations = histogram('request_duration_seconds', 'route', ROUTES)
  const firstBytes = histogram('upstream_response_seconds', 'upstream', upstreams)
  // Each series exists from the first scrape on.
  for (const reason of ['ok', ...REFUSAL_REASONS] as const) checks(reason)
  for (const reason of ISSUE_FAILURES) failures.inc({ reason }, 0)
  for (const upstream of upstreams) {
    for (const outcome of UPSTREAM_OUTCOMES) outcomes(upstream)(outcome)
    for (const statusClass of STATUS_CLASSES) responses(upstream)(statusClass)
  }
  for (const direction of ['in', 'out'] as const) bytes(direction)
  for (const issuer of issuers) for (const result of RELOAD_RESULTS) fetches.inc({ issuer, result }, 0)

  return {
    registry,
    onRequest(route, method = 'other', status, seconds) {
      requests(route)(METHODS.has(method) ? method : 'other')(status).count++
      durations.observe({ route }, seconds)
    },
    onTokenCheck(reason) {
      checks(reason).count++
    },
    onTokenIssued: () => issued.inc(),
    onLinkIssued: () => linksIssued.inc(),
    onIssueFailure: (reason) => failures.inc({ reason }),
    ofUpstream: (upstream) => ({
      onOutcome(outcome) {
        outcomes(upstream)(outcome).count++
      },
      onResponse(status, seconds) {
        const statusClass = statusClassOf(status)
        if (statusClass !== undefined) responses(upstream)(statusClass).count++
        firstBytes.observe({ upstream }, seconds)
      },
    }),
    onBytes(direction, count) {
      bytes(direction).count += count
    },
    onReload: createReloadMetrics(create, subjects, now),
    onFetch: (issuer, result) => fetches.inc({ issuer, result }),
    readFrom: (sources) => readFrom(create, sources, now),
  }
}

/** Counters and gauges whose values other components have. */
function readFrom(
  { total, gauge, gaugeBy }: ReturnType<typeof metricsIn>,
  sources: MetricSources,
  now: () => number,
): void {
  const { listener, cache, pools } = sources
  gauge('requests_in_flight', 'sum', () => listener.inFlight)
  gauge('client_connections', 'sum', () => listener.connections)
  total('client_connections_dropped_total', () => listener.droppedConnections)
  total('token_cache_hits_total', () => cache.hits)
  total('token_cache_misses_total', () => cache.misses)
  total('token_cache_evictions_total', () => cache.evictions)
  gauge('token_cache_entries', 'sum', () => cache.size)
  gaugeBy('upstream', 'upstream_connections', 'sum', () =>
    pools().map(({ upstream, connections }) => [upstream, connections]),
  )
  gaugeBy('upstream', 'upstream_queue', 'sum', () =>
    pools().map(({ upstream, queued }) => [upstream, queued]),
  )
  gaugeBy('kid', 'signing_key_age_seconds', 'max', () => {
    const key = sources.signingKey()
    return key === undefined ? [] : [[key.kid, Math.max(0, Math.floor(now() / 1000) - key.createdAt)]]
  })
  gaugeBy('kid', 'key_token_lifetime_seconds', 'max', () =>
    sources.tokenLifetimes().map(({ kid, seconds }) => [kid, seconds]),
  )
  gaugeBy('certificate', 'certificate_not_after_timestamp_seconds', 'min', () =>
    sources.certificates().map(({ certificate, expiresAt }) => [certificate, expiresAt / 1000]),
  )
  gauge('revocations', 'max', sources.revocations)
  total('log_lines_dropped_total', sources.logLinesDropped)
  gauge('ready', 'min', () => Number(sources.ready()))
  gaugeBy('issuer', 'jwks_age_seconds', 'max', () =>
    sources
      .keySets()
      .flatMap(({ issuer, ageSeconds }) => (ageSeconds === undefined ? [] : [[issuer, ageSeconds]])),
  )
}

/** Each worker loads the same version, so their counts are not added up. */
function createReloadMetrics(
  { common, gaugeBy }: ReturnType<typeof metricsIn>,
  subjects: readonly ReloadSubject[],
  now: () => number,
) {
  const reloads = new Counter({
    ...common('reloads_total'),
    labelNames: ['subject', 'result'],
    aggregator: 'max',
  })
  for (const subject of subjects) for (const result of RELOAD_RESULTS) reloads.inc({ subject, result }, 0)
  const lastGood = new Map(subjects.map((subject) => [subject, now() / 1000]))
  gaugeBy('subject', 'reload_last_good_timestamp_seconds', 'min', () => [...lastGood])
  const failingParts = new Map(subjects.map((subject) => [subject, new Set<string>()]))
  gaugeBy('subject', 'reload_failing', 'max', () =>
    [...failingParts].map(([subject, parts]) => [subject, Number(parts.size > 0)]),
  )
  return (subject: ReloadSubject, result: ReloadResult, part = ''): void => {
    const parts = failingParts.get(subject)
    if (parts === undefined) return
    reloads.inc({ subject, result })
    if (result === 'ok') {
      parts.delete(part)
      lastGood.set(subject, now() / 1000)
    } else parts.add(part)
  }
}

/** Creates a value for each key once. The keys are of a closed set. */
function memoized<Key, Value>(create: (key: Key) => Value): (key: Key) => Value {
  const known = new Map<Key, Value>()
  return (key) => {
    let value = known.get(key)
    if (value === undefined) {
      value = create(key)
      known.set(key, value)
    }
    return value
  }
}

/** Functions that create metrics in a registry; `read` is called at each scrape. */
export function metricsIn(registry: Registry) {
  const common = (name: MetricName) => ({
    name: fullName(name),
    help: HELP[name],
    registers: [registry],
  })
  return {
    common,
    counter: <Label extends string = never>(name: MetricName, labelNames: Label[] = []) =>
      new Counter({ ...common(name), labelNames }),
    /**
     * A counter whose series are counted here and handed over at each scrape: `inc` and the children of `labels()` hash
     * their labels at every call. The five of a request: 0.9 µs less on Node 26, 1.2 µs on Node 20.
     */
    series<Label extends string>(name: MetricName, labelNames: Label[]) {
      const all: { readonly labels: Readonly<Record<Label, string | number>>; count: number }[] = []
      new Counter({
        ...common(name),
        labelNames,
        collect() {
          this.reset()
          for (const { labels, count } of all) this.inc(labels, count)
        },
      })
      return (labels: Readonly<Record<Label, string | number>>): { count: number } => {
        const one = { labels, count: 0 }
        all.push(one)
        return one
      }
    },
    /** A counter whose total another component has. */
    total: (name: MetricName, read: () => number) =>
      new Counter({
        ...common(name),
        collect() {
          this.reset()
          this.inc(read())
        },
      }),
    /** A histogram by the values of one label, at zero. */
    histogram(name: MetricName, label: string, values: readonly string[]) {
      const metric = new Histogram({ ...common(name), labelNames: [label], buckets: LATENCY_BUCKETS })
      for (const value of values) metric.zero({ [label]: value })
      return metric
    },
    gauge: (name: MetricName, aggregator: Aggregator, read: () => number) =>
      new Gauge({
        ...common(name),
        aggregator,
        collect() {
          this.set(read())
        },
      }),
    gaugeBy: (
      label: string,
      name: MetricName,
      aggregator: Aggregator,
      read: () => (readonly [string, number])[],
    ) =>
      new Gauge({
        ...common(name),
        labelNames: [label],
        aggregator,
        collect() {
          this.reset()
          for (const [key, value] of read()) this.set({ [label]: key }, value)
        },
      }),
  }
}
