/**
 * The Prometheus metrics: their names, labels and values.
 * Labels come from closed sets, never a path, an account or a token; their series exist at zero from the first scrape on.
 */
import { type Aggregator, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { ROUTES } from '../gate/decide.ts'
import { UPSTREAM_OUTCOMES, type UpstreamOutcome } from '../proxy/upstream-errors.ts'
import { RELOAD_RESULTS, type ReloadResult } from '../reload/loaded.ts'
import { REJECT_REASONS, type RejectReason } from '../token/verify.ts'
import { VERSION } from '../version.ts'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'other'] as const
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const RELOAD_BUCKETS = [0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 60]

/** Gauges of prom-client with the name of a counter; `nodejs_active_handles` and its like, by type, add up to them. */
const MISNAMED_METRICS = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`)

/** Why no token was issued; the label `reason`. */
export const ISSUE_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const
export type IssueFailure = (typeof ISSUE_FAILURES)[number]

/** The label `subject`. */
export type ReloadKind = 'keys' | 'credentials' | 'revocations' | 'certificates'

/** Values of other components, read at each scrape. */
export interface MetricSources {
  readonly cache: () => { hits: number; misses: number; evictions: number; size: number }
  readonly listener: () => {
    readonly inFlight: number
    readonly connections: number
    readonly droppedConnections: number
  }
  /** The key that signs, created at `createdAt` epoch seconds; undefined in a sidecar that only verifies. */
  readonly signingKey: () => { readonly kid: string; readonly createdAt: number } | undefined
  /** How long tokens of each key may still be valid, in seconds. */
  readonly tokenLifetimes: () => readonly { readonly kid: string; readonly seconds: number }[]
  /** Active revocations. */
  readonly revocations: () => number
  readonly pools: () => readonly {
    readonly upstream: string
    readonly connections: number
    readonly queued: number
  }[]
  /** Active certificates of our own and when they expire, in epoch milliseconds. */
  readonly certificates: () => readonly { readonly certificate: string; readonly expiresAt: number }[]
  /** The state of another issuer's keys, where `keys.jwksUrl` is set. */
  readonly remoteKeys?: (() => { readonly ageSeconds?: number }) | undefined
  readonly ready: () => boolean
  readonly logLinesDropped: () => number
}

/** Counts events as they happen. */
export type Metrics = ReturnType<typeof createMetrics>

export interface MetricsOptions {
  /** Prefixes of the upstreams. */
  readonly upstreams: readonly string[]
  readonly subjects: readonly ReloadKind[]
  /** False with `enforcement: report`. */
  readonly enforcing: boolean
  readonly sources: MetricSources
  /** Epoch milliseconds. */
  readonly now: () => number
}

export function createMetrics({ upstreams, subjects, enforcing, sources, now }: MetricsOptions) {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  for (const name of MISNAMED_METRICS) registry.removeSingleMetric(name)
  const registers = [registry]
  const counter = <Label extends string = never>(name: string, help: string, labelNames: Label[] = []) =>
    new Counter({ name: `auth_sidecar_${name}`, help, labelNames, registers })
  const histogram = <Label extends string>(name: string, help: string, label: Label) =>
    new Histogram({
      name: `auth_sidecar_${name}`,
      help,
      labelNames: [label],
      buckets: LATENCY_BUCKETS,
      registers,
    })
  /** A counter whose total another component has. */
  const total = (name: string, help: string, read: () => number) =>
    new Counter({
      name: `auth_sidecar_${name}`,
      help,
      registers,
      collect() {
        this.reset()
        this.inc(read())
      },
    })
  /** Values of another component by the value of the label; without a label one value, absent while undefined. */
  const gauge = (
    name: string,
    help: string,
    aggregator: Aggregator,
    label: string | undefined,
    read: () => readonly (readonly [string, number | undefined])[],
  ) =>
    new Gauge({
      name: `auth_sidecar_${name}`,
      help,
      aggregator,
      labelNames: label === undefined ? [] : [label],
      registers,
      collect() {
        if (label === undefined)
          this.remove() // `reset` would be a value of 0
        else this.reset()
        for (const [key, value] of read())
          if (value !== undefined) this.set(label === undefined ? {} : { [label]: key }, value)
      },
    })
  const single = (name: string, help: string, aggregator: Aggregator, read: () => number | undefined) =>
    gauge(name, help, aggregator, undefined, () => [['', read()]])

  const requests = counter('requests_total', 'Requests by route, method and status.', [
    'route',
    'method',
    'status',
  ])
  const durations = histogram(
    'request_duration_seconds',
    'Seconds from the request head to the end of the response.',
    'route',
  )
  const { listener, cache } = sources
  single('requests_in_flight', 'Requests that have not ended.', 'sum', () => listener().inFlight)
  single('client_connections', 'Open connections of clients.', 'sum', () => listener().connections)
  total(
    'client_connections_dropped_total',
    'Connections closed because limits.connections were open.',
    () => listener().droppedConnections,
  )
  const checks = counter('token_checks_total', 'Token checks by result and reason.', ['result', 'reason'])
  const issued = counter('tokens_issued_total', 'Tokens issued.')
  const failures = counter('token_issue_failures_total', 'Logins that ended without a token, by reason.', [
    'reason',
  ])
  total('token_cache_hits_total', 'Token checks answered from the cache.', () => cache().hits)
  total('token_cache_misses_total', 'Token checks not answered from the cache.', () => cache().misses)
  total('token_cache_evictions_total', 'Tokens evicted from the full cache.', () => cache().evictions)
  single('token_cache_entries', 'Tokens in the cache.', 'sum', () => cache().size)
  const outcomes = counter('upstream_requests_total', 'Forwarded requests by upstream and outcome.', [
    'upstream',
    'outcome',
  ])
  const firstBytes = histogram(
    'upstream_response_seconds',
    'Seconds from the request head to the head of the upstream response.',
    'upstream',
  )
  const bytes = counter('transferred_bytes_total', 'Body bytes from (in) and to (out) clients.', [
    'direction',
  ])
  gauge(
    'upstream_connections',
    'Connections to the upstream, also those being opened.',
    'sum',
    'upstream',
    () => sources.pools().map(({ upstream, connections }) => [upstream, connections]),
  )
  gauge('upstream_queue', 'Requests that wait for a connection to the upstream.', 'sum', 'upstream', () =>
    sources.pools().map(({ upstream, queued }) => [upstream, queued]),
  )
  gauge('signing_key_age_seconds', 'Seconds since the key that signs was created.', 'max', 'kid', () => {
    const key = sources.signingKey()
    return key === undefined ? [] : [[key.kid, Math.max(0, Math.floor(now() / 1000) - key.createdAt)]]
  })
  gauge('key_token_lifetime_seconds', 'Seconds for which tokens of the key may live.', 'max', 'kid', () =>
    sources.tokenLifetimes().map(({ kid, seconds }) => [kid, seconds]),
  )
  gauge(
    'certificate_not_after_timestamp_seconds',
    'When the active certificate expires, in epoch seconds.',
    'min',
    'certificate',
    () => sources.certificates().map(({ certificate, expiresAt }) => [certificate, expiresAt / 1000]),
  )
  single('revocations', 'Active revocations.', 'max', sources.revocations)
  total('log_lines_dropped_total', 'Log lines dropped because stdout was read too slowly.', () =>
    sources.logLinesDropped(),
  )
  single('ready', '1 while requests are accepted and everything they need is loaded, else 0.', 'min', () =>
    Number(sources.ready()),
  )
  single('enforcing', '1 while refused tokens are refused, 0 with enforcement: report.', 'min', () =>
    Number(enforcing),
  )
  new Gauge({
    name: 'auth_sidecar_build_info',
    help: 'Version of the sidecar and of Node.',
    labelNames: ['version', 'node'],
    aggregator: 'max',
    registers,
  }).set({ version: VERSION, node: process.version }, 1)
  const onReload = reloadMetrics(registry, subjects, now)
  const { remoteKeys } = sources
  const fetches = remoteKeys && counter('jwks_fetches_total', 'Fetches of the JWK Set by result.', ['result'])
  if (remoteKeys !== undefined)
    single(
      'jwks_age_seconds',
      'Seconds since the issuer last sent a good JWK Set.',
      'max',
      () => remoteKeys().ageSeconds,
    )

  // Children are looked up once: a lookup costs as much as an observation (0.1 to 0.2 us each).
  const children = <Key extends string, Child>(keys: readonly Key[], child: (key: Key) => Child) =>
    new Map(keys.map((key) => [key, child(key)]))
  const started = <Child extends { inc(value: number): void }>(child: Child): Child => {
    child.inc(0)
    return child
  }
  const durationOf = children(ROUTES, (route) => {
    durations.zero({ route })
    return durations.labels(route)
  })
  const checkOf = children(['ok', ...REJECT_REASONS], (reason) =>
    started(checks.labels(reason === 'ok' ? 'accepted' : 'rejected', reason)),
  )
  const failureOf = children(ISSUE_FAILURES, (reason) => started(failures.labels(reason)))
  const outcomeOf = children(upstreams, (upstream) =>
    children(UPSTREAM_OUTCOMES, (outcome) => started(outcomes.labels(upstream, outcome))),
  )
  const firstByteOf = children(upstreams, (upstream) => {
    firstBytes.zero({ upstream })
    return firstBytes.labels(upstream)
  })
  const bytesOf = children(['in', 'out'], (direction) => started(bytes.labels(direction)))
  const fetchOf = fetches && children(RELOAD_RESULTS, (result) => started(fetches.labels(result)))
  /** Keyed by one number per label combination; a string key would be built and hashed per request. */
  const requestsOf = new Map<number, ReturnType<typeof requests.labels>>()

  return {
    registry,
    /** A request has ended. `seconds`: from its head to the end of its response. */
    onRequest(route: (typeof ROUTES)[number], method: string | undefined, status: number, seconds: number) {
      const known: readonly (string | undefined)[] = METHODS
      const at = known.includes(method) ? known.indexOf(method) : METHODS.length - 1
      const key = (status * METHODS.length + at) * ROUTES.length + ROUTES.indexOf(route)
      let child = requestsOf.get(key)
      if (child === undefined) {
        child = requests.labels(route, METHODS[at] ?? 'other', String(status))
        requestsOf.set(key, child)
      }
      child.inc()
      durationOf.get(route)?.observe(seconds)
    },
    onTokenCheck: (reason: 'ok' | RejectReason): void => checkOf.get(reason)?.inc(),
    onTokenIssued: (): void => issued.inc(),
    onIssueFailure: (reason: IssueFailure): void => failureOf.get(reason)?.inc(),
    onUpstreamOutcome: (upstream: string, outcome: UpstreamOutcome): void =>
      outcomeOf.get(upstream)?.get(outcome)?.inc(),
    onFirstByte: (upstream: string, seconds: number): void => firstByteOf.get(upstream)?.observe(seconds),
    onBytes: (direction: 'in' | 'out', bytes: number): void => bytesOf.get(direction)?.inc(bytes),
    onReload,
    /** A fetch of another issuer's keys has ended. */
    onFetch: (result: ReloadResult): void => fetchOf?.get(result)?.inc(),
  }
}

/** Creates the metrics of reloads. Each worker loads the same version, so their counts are not added up. */
function reloadMetrics(registry: Registry, subjects: readonly ReloadKind[], now: () => number) {
  const shared = { labelNames: ['subject'], registers: [registry] }
  const reloads = new Counter({
    name: 'auth_sidecar_reloads_total',
    help: 'New versions that became active (ok) or could not be used (failed).',
    aggregator: 'max',
    ...shared,
    labelNames: ['subject', 'result'],
  })
  const seconds = new Histogram({
    name: 'auth_sidecar_reload_seconds',
    help: 'Seconds from the change until it became active.',
    buckets: RELOAD_BUCKETS,
    ...shared,
  })
  const lastGood = new Gauge({
    name: 'auth_sidecar_reload_last_good_timestamp_seconds',
    help: 'When the active version was loaded, in epoch seconds.',
    aggregator: 'min',
    ...shared,
  })
  const failing = new Gauge({
    name: 'auth_sidecar_reload_failing',
    help: '1 while the newest version cannot be used and an older one is active, else 0.',
    aggregator: 'max',
    ...shared,
  })
  const failingParts = new Map(subjects.map((subject) => [subject, new Set<string>()]))
  for (const subject of subjects) {
    for (const result of RELOAD_RESULTS) reloads.inc({ subject, result }, 0)
    seconds.zero({ subject })
    lastGood.set({ subject }, now() / 1000)
    failing.set({ subject }, 0)
  }
  /**
   * A new version was loaded (`ok`) or could not be used (`failed`). `took`: seconds since the change, where it is known.
   * `part`: one of several under the subject, which is failing while any of its parts is.
   */
  return (subject: ReloadKind, result: ReloadResult, took?: number, part = ''): void => {
    const parts = failingParts.get(subject)
    if (parts === undefined) return
    reloads.inc({ subject, result })
    if (result === 'ok') {
      parts.delete(part)
      lastGood.set({ subject }, now() / 1000)
    } else parts.add(part)
    failing.set({ subject }, parts.size > 0 ? 1 : 0)
    if (took !== undefined) seconds.observe({ subject }, took)
  }
}
