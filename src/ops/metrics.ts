/**
 * The Prometheus metrics: names, labels and values. No label is a path of a request, an account or a token.
 * Series whose labels are known beforehand exist at zero from the first scrape on. Counts outlive a worker,
 * gauges do not. A new metric is a row in `METRICS`; docs/architecture.md says where its value comes from.
 */
import { type Aggregator, collectDefaultMetrics, Registry } from 'prom-client'
import type { AuthData } from '../auth/auth-data.ts'
import {
  ACCESS_FAILURES,
  type AccessFailure,
  ERRORS,
  LOGIN_FAILURES,
  UPSTREAM_OUTCOMES,
} from '../base/errors.ts'
import { VERSION } from '../base/version.ts'
import type { DataListener } from '../client/listener.ts'
import type { Config } from '../config/config.ts'
import type { ApiEvent } from '../endpoints/api-events.ts'
import { ROUTE_LABELS, type RouteLabel } from '../gate/route.ts'
import type { Key } from '../keys/key-ring.ts'
import type { Forwarder } from '../proxy/forward.ts'
import type { UpstreamEvents } from '../proxy/transfer.ts'
import { RELOAD_RESULTS, type ReloadResult } from '../reload/reloadable.ts'
import type { Room, RoomMetric } from '../room.ts'
import type { TokenCache } from '../token/cache.ts'
import { ByLabel, Counts, Durations } from './counts.ts'
import type { OpenFiles } from './open-files.ts'

/** The interval of the timer that measures delays of the event loop. An idle process wakes up for it. */
const EVENT_LOOP_TIMER_MS = 100

/** Requests with other methods have the label `other`. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
const TOKEN_RESULTS = ['accepted', 'rejected'] as const
const CHECKS = { accepted: ['ok'], rejected: ACCESS_FAILURES } as const
type CheckResult = 'ok' | AccessFailure
/**
 * Those of the sidecar itself. 499: the client has left.
 * Statuses that an upstream invents must not take their places.
 */
const OWN_STATUSES = new Set([200, 204, 401, 499, ...Object.values(ERRORS).map(({ status }) => status)])
/** Of the label `status`, beside `other`. */
const MAX_STATUSES = 64
const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx']
export const METRIC_PREFIX = 'auth_sidecar_'

// `labels`: their names, at most three. `aggregator`: how the values of several processes become one.

function counter<const Labels extends LabelNames>(
  help: string,
  labels: Labels,
  aggregator: Aggregator = 'sum',
) {
  return { type: 'counter', help, labels, aggregator } as const
}

function gauge<const Labels extends LabelNames>(
  help: string,
  labels: Labels,
  aggregator: Aggregator = 'sum',
) {
  return { type: 'gauge', help, labels, aggregator } as const
}

function histogram<const Labels extends LabelNames>(help: string, labels: Labels) {
  return { type: 'histogram', help, labels, aggregator: 'sum' } as const
}

/** All metrics of the sidecar. Names are without `METRIC_PREFIX`. */
export const METRICS = {
  build_info: gauge('Version of the sidecar and of Node.', ['version', 'node'], 'max'),
  certificate_not_after_timestamp_seconds: gauge('When it expires in epoch seconds.', ['certificate'], 'min'),
  client_connections: gauge('Open connections of clients.', []),
  client_connections_dropped_total: counter('New connections closed while limits.connections were open.', []),
  client_connections_dropped_by_address_total: counter('Closed because of limits.connectionsPerAddress.', []),
  client_connections_evicted_total: counter(
    'Idle connections, and TLS handshakes, closed to make room for new ones.',
    [],
  ),
  enforcing: gauge('1 while refused tokens are refused, 0 with enforcement: report.', [], 'min'),
  feed_age_seconds: gauge('Seconds since a hub last said that the state is the newest.', [], 'max'),
  jwks_age_seconds: gauge('Seconds since the issuer last sent a good JWK Set.', ['issuer'], 'max'),
  jwks_fetches_total: counter('Fetches of JWK Sets by issuer and result.', ['issuer', 'result']),
  key_token_lifetime_seconds: gauge('Seconds that tokens of the key may live at most.', ['kid'], 'max'),
  links_issued_total: counter('Links issued.', []),
  log_lines_dropped_total: counter('Log lines dropped because stdout was slow, or its disk was full.', []),
  open_files_used_up: gauge(
    '1 while new clients are refused because no open file is left, else 0.',
    [],
    'max',
  ),
  logins_with_previous_secret_total: counter('Logins with the secret before the last rotation.', []),
  credentials_active: gauge('Credentials that are neither disabled nor expired.', [], 'max'),
  ready: gauge('1 while requests are accepted and everything they need is loaded, else 0.', [], 'min'),
  reload_failing: gauge('1 while the newest version cannot be used in full, else 0.', ['subject'], 'max'),
  reload_last_good_timestamp_seconds: gauge('When the active version was loaded.', ['subject'], 'min'),
  reload_suspect: gauge('1 while the newest version is probably a mistake, else 0.', ['subject'], 'max'),
  // All workers load the same version, so the total is the maximum of their counts, not the sum.
  reloads_total: counter('New versions: usable in full (ok) or not (failed).', ['subject', 'result'], 'max'),
  request_duration_seconds: histogram('Seconds from the request head to the end of the response.', ['route']),
  requests_in_flight: gauge('Requests that are served or wait, without tunnels.', []),
  requests_total: counter('Requests by route, method and status.', ['route', 'method', 'status']),
  revocations: gauge('Active revocations.', [], 'max'),
  signing_key_age_seconds: gauge('Seconds since the key that signs was created.', ['kid'], 'max'),
  state_fingerprint: gauge(
    'A number made from the content, equal in replicas with the same.',
    ['subject'],
    'max',
  ),
  token_cache_entries: gauge('Tokens in the cache.', []),
  token_cache_evictions_total: counter('Tokens evicted from the full cache.', []),
  token_cache_hits_total: counter('Token checks decided by the cache.', []),
  token_cache_misses_total: counter('Token checks not decided by the cache.', []),
  token_checks_total: counter('Token checks by result and reason.', ['result', 'reason']),
  token_issue_failures_total: counter('Logins that ended without a token, by reason.', ['reason']),
  tokens_issued_total: counter('Tokens issued.', []),
  transferred_bytes_total: counter('Body bytes from (in) and to (out) clients.', ['direction']),
  uncaught_exceptions_total: counter('Exceptions that no request has caught. The process goes on.', []),
  upstream_connections: gauge('Connections to the upstream, also those being opened.', ['upstream']),
  upstream_queue: gauge('Requests that wait while all connections are in use.', ['upstream']),
  upstream_requests_total: counter('Forwarded requests by upstream and outcome.', ['upstream', 'outcome']),
  upstream_response_seconds: histogram('Seconds from the request head to the response head.', ['upstream']),
  upstream_responses_total: counter('Responses by upstream and status class.', ['upstream', 'class']),
  worker_restarts_total: counter('Workers that ended and were replaced.', []),
  workers: gauge('Processes that accept connections of the data listener and respond to the primary.', []),
}

export type MetricName = keyof typeof METRICS
export type LabelOf<Name extends MetricName> = (typeof METRICS)[Name]['labels'][number]

type LabelNames =
  | readonly []
  | readonly [string]
  | readonly [string, string]
  | readonly [string, string, string]
/** A series without a value is left out. */
type OneSeries = number | Durations | undefined
/** The series of each value of a label. */
type ByValue<Below> = Iterable<readonly [labelValue: string, Below]>
interface SeriesByLabelCount {
  0: OneSeries
  1: ByValue<OneSeries>
  2: ByValue<ByValue<OneSeries>>
  3: ByValue<ByValue<ByValue<OneSeries>>>
}
type Series = SeriesByLabelCount[keyof SeriesByLabelCount]
type SeriesOf<Name extends MetricName> = SeriesByLabelCount[(typeof METRICS)[Name]['labels']['length']]
type Values<N extends MetricName> = { readonly [Name in N]: SeriesOf<Name> }

// Of each process, whatever it serves.
type OfProcess = 'log_lines_dropped_total' | 'uncaught_exceptions_total'
type OfPrimary = 'worker_restarts_total' | 'workers' // only the primary of several workers has these
export type ProcessCounts = () => Values<OfProcess>
export type PrimaryValues = Values<OfPrimary | 'ready' | OfProcess>

type DeclaredFamily = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]
export type MetricValue = DeclaredFamily['values'][number] & { readonly metricName?: string | undefined }
/**
 * A metric and its values in prom-client's JSON form. `type` is a word there, though declared as a number.
 * The values are made while they are read: see `eachSeries`.
 */
export type MetricFamily = Omit<DeclaredFamily, 'type' | 'collect' | 'values'> & {
  readonly type: unknown
  readonly values: Iterable<MetricValue>
}
/** As it is sent to another process. */
export type StoredFamily = Omit<MetricFamily, 'values'> & { readonly values: readonly MetricValue[] }

/** `status`: the metrics of the status page. */
export type MetricGroup = 'all' | 'status'
export type ReadMetrics = (group: MetricGroup) => Promise<readonly MetricFamily[]>

/**
 * On the status page.
 * To collect all of prom-client would cost more, and reset the measurements of the event loop.
 */
export const PROCESS_METRICS = ['process_cpu_seconds_total', 'process_resident_memory_bytes'] as const

/** What the metrics read of `AuthData`. */
export interface AuthDataSource {
  readonly subjects: AuthData['subjects']
  readonly keys: {
    ring(): { readonly signing?: Pick<Key, 'kid' | 'createdAtSeconds'> | undefined }
    readonly tokenLifetimes: AuthData['keys']['tokenLifetimes']
  }
  readonly keySets: readonly {
    readonly issuer: string
    readonly fetches: Readonly<Record<ReloadResult, number>>
    state(): { readonly ageSeconds: number | undefined }
  }[]
  readonly revocations: Pick<AuthData['revocations'], 'count'>
  readonly certificateSets: ReadonlyMap<
    string,
    { current(): { readonly endsAtSeconds?: number | undefined } }
  >
  readonly suspicions: AuthData['suspicions']
  readonly activeCredentials: AuthData['activeCredentials']
  /** Undefined without a feed. */
  readonly feed?: { ageSeconds(): number | undefined } | undefined
}

export interface MetricSources {
  readonly config: Pick<Config, 'enforcement'>
  readonly authData: AuthDataSource
  readonly tokenCache: Pick<TokenCache, 'counts'>
  readonly listener: Pick<DataListener, 'inFlight' | 'connections' | 'connectionCounts'>
  readonly openFiles: Pick<OpenFiles, 'areUsedUp'>
  readonly forwarder: Pick<Forwarder, 'pools'>
  readonly isReady: () => boolean
  readonly processCounts: ProcessCounts
  readonly rooms?: readonly Pick<Room, 'metrics' | 'reloadSubject'>[]
}

export class Metrics {
  readonly #registry = new Registry()
  readonly #now: () => number
  readonly #counts = {
    links_issued_total: 0,
    logins_with_previous_secret_total: 0,
    reloads_total: new ByLabel(() => new Counts(RELOAD_RESULTS)),
    request_duration_seconds: new ByLabel(() => new Durations(), ROUTE_LABELS),
    requests_total: new ByLabel(() => new ByLabel(() => new Counts())),
    token_checks_total: new ByLabel((result) => new Counts<CheckResult>(CHECKS[result]), TOKEN_RESULTS),
    token_issue_failures_total: new Counts(LOGIN_FAILURES),
    tokens_issued_total: 0,
    transferred_bytes_total: new Counts(['in', 'out']),
    upstream_requests_total: new ByLabel(() => new Counts(UPSTREAM_OUTCOMES)),
    upstream_response_seconds: new ByLabel(() => new Durations()),
    upstream_responses_total: new ByLabel(() => new Counts(STATUS_CLASSES)),
  } satisfies Partial<Values<MetricName>>
  /** Other values of the label `status`: what upstreams have sent first. */
  readonly #otherStatuses = new Set<number>()
  readonly #lastGoodSeconds = new ByLabel(() => this.#now() / 1000)
  /**
   * The names of the certificate sets,
   * or '' for another subject, whose newest version cannot be used in full.
   */
  readonly #failingReloads = new ByLabel(() => new Set<string>())

  constructor(now: () => number) {
    this.#now = now
    collectDefaultMetrics({ register: this.#registry, eventLoopMonitoringPrecision: EVENT_LOOP_TIMER_MS })
    // These gauges have names of counters.
    // They only add up the types of `nodejs_active_handles` and the like.
    for (const what of ['handles', 'requests', 'resources']) {
      this.#registry.removeSingleMetric(`nodejs_active_${what}_total`)
    }
  }

  /** Counts refusals of malformed requests, too. `seconds`: from the head to the end of the response. */
  onRequest(route: RouteLabel, method: string | undefined, status: number, seconds: number): void {
    const known = method !== undefined && METHODS.has(method) ? method : 'other'
    this.#counts.requests_total.of(route).of(known).add(this.#statusLabel(status))
    this.#counts.request_duration_seconds.of(route).observe(seconds)
  }

  /** An upstream chooses the status: without a bound, it would choose the number of series. */
  #statusLabel(status: number): string {
    if (OWN_STATUSES.has(status) || this.#otherStatuses.has(status)) {
      return String(status)
    }
    const isFull = OWN_STATUSES.size + this.#otherStatuses.size >= MAX_STATUSES
    if (status < 100 || status > 599 || isFull) {
      return 'other'
    }
    this.#otherStatuses.add(status)
    return String(status)
  }

  onBytes(direction: 'in' | 'out', count: number): void {
    this.#counts.transferred_bytes_total.add(direction, count)
  }

  onTokenCheck(reason: CheckResult): void {
    this.#counts.token_checks_total.of(reason === 'ok' ? 'accepted' : 'rejected').add(reason)
  }

  onEvent(what: ApiEvent): void {
    if (what.event === 'login') {
      this.#onLogin(what)
    } else if (what.event === 'link_created') {
      this.#counts.links_issued_total++
    } else if (what.event === 'login_failed') {
      this.#onLoginFailure(what)
    } else {
      what.event satisfies 'logout' | 'link_ended' // have no count
    }
  }

  /** A failed login by HTTP Basic is a refused request, which `onTokenCheck` counts. */
  #onLoginFailure({ method, reason }: Extract<ApiEvent, { event: 'login_failed' }>): void {
    if (method !== 'basic') {
      this.#counts.token_issue_failures_total.add(reason)
    }
  }

  #onLogin({ method, usedPreviousSecret }: Extract<ApiEvent, { event: 'login' }>): void {
    // HTTP Basic logs in without a token.
    if (method !== 'basic') {
      this.#counts.tokens_issued_total++
    }
    if (usedPreviousSecret) {
      this.#counts.logins_with_previous_secret_total++
    }
  }

  ofUpstream(prefix: string): UpstreamEvents {
    const requests = this.#counts.upstream_requests_total.of(prefix)
    const responses = this.#counts.upstream_responses_total.of(prefix)
    const durations = this.#counts.upstream_response_seconds.of(prefix)
    return {
      onOutcome: (outcome) => requests.add(outcome),
      onResponse: (status, seconds) => {
        const statusClass = STATUS_CLASSES[Math.floor(status / 100) - 2]
        if (statusClass !== undefined) {
          responses.add(statusClass)
        }
        durations.observe(seconds)
      },
    }
  }

  /** `subject`: that of a source (`ReloadSubject`), or of a room. */
  onReload(subject: string, result: ReloadResult, certificate = ''): void {
    this.#counts.reloads_total.of(subject).add(result)
    if (result === 'ok') {
      this.#lastGoodSeconds.set(subject, this.#now() / 1000)
      this.#failingReloads.of(subject).delete(certificate)
    } else {
      this.#failingReloads.of(subject).add(certificate)
    }
  }

  /** Returns the function that reads the metrics of this process. */
  readFrom(sources: MetricSources): ReadMetrics {
    const { rooms = [] } = sources
    const ofRooms = rooms.flatMap(({ reloadSubject }) => reloadSubject ?? [])
    for (const subject of [...sources.authData.subjects, ...ofRooms]) {
      this.#counts.reloads_total.of(subject)
      this.#lastGoodSeconds.of(subject) // the time of the start
      this.#failingReloads.of(subject)
    }
    return async (group) => {
      const roomFamilies = rooms.flatMap((room) => room.metrics?.() ?? []).map(familyOf)
      const own = [...familiesOf(this.#valuesFrom(sources)), ...roomFamilies]
      if (group === 'all') {
        return [...own, ...(await this.#registry.getMetricsAsJSON())]
      }
      await this.#registry.getSingleMetric('process_cpu_user_seconds_total')?.get() // also updates the sum
      const ofProcess = PROCESS_METRICS.flatMap((name) => this.#registry.getSingleMetric(name)?.get() ?? [])
      return [...own, ...(await Promise.all(ofProcess))]
    }
  }

  #valuesFrom(sources: MetricSources): Values<Exclude<MetricName, OfPrimary>> {
    const { config, tokenCache, listener, openFiles, forwarder, isReady, processCounts } = sources
    const { keys, keySets, revocations, certificateSets, suspicions, activeCredentials } = sources.authData
    const { signing: key } = keys.ring()
    const nowSeconds = Math.floor(this.#now() / 1000)
    const pools = forwarder.pools()
    const ends = Array.from(certificateSets, ([name, set]) => [name, set.current().endsAtSeconds] as const)
    return {
      build_info: [[VERSION, [[process.version, 1]]]],
      certificate_not_after_timestamp_seconds: ends,
      client_connections: listener.connections,
      client_connections_dropped_total: listener.connectionCounts.dropped,
      client_connections_dropped_by_address_total: listener.connectionCounts.droppedByAddress,
      client_connections_evicted_total: listener.connectionCounts.evicted,
      open_files_used_up: Number(openFiles.areUsedUp),
      enforcing: Number(config.enforcement === 'enforce'),
      feed_age_seconds: sources.authData.feed?.ageSeconds(),
      jwks_age_seconds: keySets.map(({ issuer, state }) => [issuer, state().ageSeconds]),
      jwks_fetches_total: keySets.map(({ issuer, fetches }) => [issuer, Object.entries(fetches)]),
      key_token_lifetime_seconds: keys.tokenLifetimes().map(({ kid, seconds }) => [kid, seconds]),
      credentials_active: activeCredentials(),
      ready: Number(isReady()),
      reload_failing: Array.from(this.#failingReloads, ([subject, { size }]) => [subject, Number(size > 0)]),
      reload_last_good_timestamp_seconds: this.#lastGoodSeconds,
      reload_suspect: suspicions.suspect(),
      state_fingerprint: suspicions.fingerprints(),
      requests_in_flight: listener.inFlight,
      revocations: revocations.count(),
      signing_key_age_seconds: key ? [[key.kid, Math.max(0, nowSeconds - key.createdAtSeconds)]] : [],
      token_cache_entries: tokenCache.counts.size,
      token_cache_evictions_total: tokenCache.counts.evictions,
      token_cache_hits_total: tokenCache.counts.hits,
      token_cache_misses_total: tokenCache.counts.misses,
      upstream_connections: pools.map(({ prefix, connections }) => [prefix, connections]),
      upstream_queue: pools.map(({ prefix, queued }) => [prefix, queued]),
      ...this.#counts,
      ...processCounts(),
    }
  }
}

/** Returns the metrics in the form that `AggregatorRegistry.aggregate` takes. */
export function familiesOf(values: Partial<Values<MetricName>>): MetricFamily[] {
  return (Object.keys(values) as MetricName[]).map((key) => {
    const { type, help, labels, aggregator } = METRICS[key]
    const name = `${METRIC_PREFIX}${key}`
    const series = { [Symbol.iterator]: () => valuesOf(name, labels, values[key], {}) }
    return { name, help, type, aggregator, values: series }
  })
}

export const familyOf = ({ name, ...metric }: RoomMetric): MetricFamily => ({
  ...metric,
  name: `${METRIC_PREFIX}${name}`,
  values: metric.values.map(({ labels, value }) => ({ labels, value })),
})

/** `labels`: the names of the labels that `series` still has. `above`: the labels with values. */
function* valuesOf(
  name: string,
  [label = '', ...others]: readonly string[],
  series: Series,
  above: Readonly<Record<string, string>>,
): Generator<MetricValue> {
  if (series === undefined) {
    return
  }
  if (typeof series === 'number') {
    yield { labels: above, value: series }
    return
  }
  if (series instanceof Durations) {
    yield* series.values(name, above)
    return
  }
  for (const [value, below] of series) {
    yield* valuesOf(name, others, below, { ...above, [label]: value })
  }
}
