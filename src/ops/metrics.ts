/**
 * The Prometheus metrics: names, labels and values. Labels come from closed sets: no path, account or token.
 * Series whose labels are known beforehand exist at zero from the first scrape on.
 * `Metrics` counts events of requests and reloads. What only one part knows, such as cache hits, this part counts itself.
 * A new metric needs a row in `METRICS` and its value in `readFrom`; if a new part holds the value, a member of `MetricSources`.
 * One that counts events also needs a `Counts` or a `Histogram` with its series at zero, and a method, which the interface of
 * the caller names (such as `Dependencies.metrics`). One that only the primary of several workers has: `ReadInPrimary`.
 * A name ends in `_total` if it is a counter, whose counts outlive a worker. A histogram has one label.
 */
import { type Aggregator, collectDefaultMetrics, Registry } from 'prom-client'
import type { AuthData, ReloadSubject } from '../auth-data.ts'
import type { AccessFailure, LoginFailure } from '../base/errors.ts'
import { ACCESS_FAILURES, LOGIN_FAILURES, UPSTREAM_OUTCOMES, type UpstreamOutcome } from '../base/errors.ts'
import { VERSION } from '../base/version.ts'
import type { DataListener } from '../client/listener.ts'
import type { Config } from '../config/config.ts'
import { ROUTE_LABELS, type RouteLabel } from '../gate/route.ts'
import type { Key } from '../keys/key-ring.ts'
import type { RemoteKeys } from '../keys/remote-keys.ts'
import type { Forwarder } from '../proxy/forward.ts'
import type { UpstreamEvents } from '../proxy/transfer.ts'
import { RELOAD_RESULTS, type ReloadResult } from '../reload/reloadable.ts'
import type { CertificateSet } from '../tls/certificates.ts'
import type { TokenCache } from '../token/cache.ts'

/** Requests with other methods have the label `other`. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx']
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
export const METRIC_PREFIX = 'auth_sidecar_'

/** `aggregator`: how the values of several processes become one. The default is their sum. */
type Metric = readonly [help: string, labels?: readonly string[], aggregator?: Aggregator]

/** Metrics whose values are read at each scrape. Names are without `METRIC_PREFIX`. */
export const METRICS = {
  build_info: ['Version of the sidecar and of Node.', ['version', 'node'], 'max'],
  certificate_not_after_timestamp_seconds: ['When it expires, in epoch seconds.', ['certificate'], 'min'],
  client_connections: ['Open connections of clients.'],
  client_connections_dropped_total: ['Connections closed because limits.connections were open.'],
  enforcing: ['1 while refused tokens are refused, 0 with enforcement: report.', [], 'min'],
  jwks_age_seconds: ['Seconds since the issuer last sent a good JWK Set.', ['issuer'], 'max'],
  jwks_fetches_total: ['Fetches of JWK Sets by issuer and result.', ['issuer', 'result']],
  key_token_lifetime_seconds: ['Seconds that tokens of the key may live at most.', ['kid'], 'max'],
  links_issued_total: ['Links issued.'],
  log_lines_dropped_total: ['Log lines dropped because stdout was not read in time, or its disk was full.'],
  ready: ['1 while requests are accepted and everything they need is loaded, else 0.', [], 'min'],
  reload_failing: ['1 while the newest version cannot be used, else 0.', ['subject'], 'max'],
  reload_last_good_timestamp_seconds: ['When the active version was loaded.', ['subject'], 'min'],
  // All workers load the same version, so the total is the maximum of their counts, not the sum.
  reloads_total: ['New versions: active (ok) or unusable (failed).', ['subject', 'result'], 'max'],
  request_duration_seconds: ['Seconds from the request head to the end of the response.', ['route']],
  requests_in_flight: ['Requests that are served or wait, without tunnels.'],
  requests_total: ['Requests by route, method and status.', ['route', 'method', 'status']],
  revocations: ['Active revocations.', [], 'max'],
  signing_key_age_seconds: ['Seconds since the key that signs was created.', ['kid'], 'max'],
  token_cache_entries: ['Tokens in the cache.'],
  token_cache_evictions_total: ['Tokens evicted from the full cache.'],
  token_cache_hits_total: ['Token checks decided by the cache.'],
  token_cache_misses_total: ['Token checks not decided by the cache.'],
  token_checks_total: ['Token checks by result and reason.', ['result', 'reason']],
  token_issue_failures_total: ['Logins that ended without a token, by reason.', ['reason']],
  tokens_issued_total: ['Tokens issued.'],
  transferred_bytes_total: ['Body bytes from (in) and to (out) clients.', ['direction']],
  uncaught_exceptions_total: ['Exceptions that no request has caught. The process goes on.'],
  upstream_connections: ['Connections to the upstream, also those being opened.', ['upstream']],
  upstream_queue: ['Requests that wait for a connection to the upstream.', ['upstream']],
  upstream_requests_total: ['Forwarded requests by upstream and outcome.', ['upstream', 'outcome']],
  upstream_response_seconds: ['Seconds from the request head to the response head.', ['upstream']],
  upstream_responses_total: ['Responses by upstream and status class.', ['upstream', 'class']],
  worker_restarts_total: ['Workers that ended and were replaced.'],
  workers: ['Processes that share the data listener, accept connections and respond to the primary.'],
} as const satisfies Record<string, Metric>

export type MetricName = keyof typeof METRICS
export type LabelOf<Name extends MetricName> = NonNullable<(typeof METRICS)[Name][1]>[number]

type Labels<Name extends MetricName> = Readonly<Record<LabelOf<Name>, string>>
type Series<Name extends MetricName> = readonly (readonly [labels: Labels<Name>, value: number | undefined])[]
/** The series by the value of their label. */
type Histogram = Map<string, Durations>

/** A function for each metric. It returns one value, or one per series. A series without a value is left out. */
type Reads<Names extends MetricName> = { readonly [Name in Names]: () => number | Series<Name> | Histogram }

/** What each process counts, whatever it serves. */
export type ProcessCounts = Reads<'log_lines_dropped_total' | 'uncaught_exceptions_total'>
type ReadInPrimary = 'worker_restarts_total' | 'workers' // only the primary of several workers has these
export type PrimaryReads = Reads<ReadInPrimary | 'ready'> & ProcessCounts

type DeclaredFamily = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]
/** A metric and its values in prom-client's JSON form. `type` is a word there, though declared as a number. */
export type MetricFamily = Omit<DeclaredFamily, 'type' | 'collect'> & { readonly type: unknown }

/** `status`: the metrics of the status page. */
export type MetricGroup = 'all' | 'status'
export type ReadMetrics = (group: MetricGroup) => Promise<readonly MetricFamily[]>

/** On the status page. To collect all of prom-client would cost more, and reset the measurements of the event loop. */
export const PROCESS_METRICS = ['process_cpu_seconds_total', 'process_resident_memory_bytes'] as const

export interface MetricSources {
  readonly config: Pick<Config, 'enforcement'>
  readonly authData: MeasuredAuthData
  readonly tokenCache: Pick<TokenCache, 'counts'>
  readonly listener: Pick<DataListener, 'inFlight' | 'connections' | 'droppedConnections'>
  readonly forwarder: Pick<Forwarder, 'pools'>
  readonly isReady: () => boolean
  readonly processCounts: ProcessCounts
}

type SigningKey = Pick<Key, 'kid' | 'createdAtSeconds'>
export interface MeasuredAuthData extends Pick<AuthData, 'subjects'> {
  readonly keys: Pick<AuthData['keys'], 'tokenLifetimes'> & { ring(): { signing?: SigningKey | undefined } }
  readonly keySets: readonly Pick<RemoteKeys, 'issuer' | 'fetches' | 'state'>[]
  readonly revocations: Pick<AuthData['revocations'], 'count'>
  readonly certificateSets: ReadonlyMap<string, { current(): Pick<CertificateSet, 'endsAtSeconds'> }>
}

/** Counts events, each by a method, and reads the other values from the parts that hold them. */
export class Metrics {
  readonly #registry = new Registry()
  readonly #now: () => number
  readonly #requests = new Counts<'requests_total'>()
  readonly #bytes = new Counts<'transferred_bytes_total'>()
  readonly #tokenChecks = new Counts<'token_checks_total'>()
  readonly #loginFailures = new Counts<'token_issue_failures_total'>()
  readonly #upstreamRequests = new Counts<'upstream_requests_total'>()
  readonly #upstreamResponses = new Counts<'upstream_responses_total'>()
  readonly #reloads = new Counts<'reloads_total'>()
  readonly #lastGoodSeconds = new Map<ReloadSubject, number>()
  /** Subjects whose newest version cannot be used, each with the name of its certificate set. */
  readonly #failingReloads = new Set<string>()
  readonly #requestSeconds: Histogram = new Map(ROUTE_LABELS.map((route) => [route, new Durations()]))
  readonly #upstreamSeconds: Histogram = new Map()
  #tokensIssued = 0
  #linksIssued = 0

  constructor(now: () => number) {
    this.#now = now
    collectDefaultMetrics({ register: this.#registry })
    // These gauges have names of counters. They only add up the types of `nodejs_active_handles` and the like.
    for (const what of ['handles', 'requests', 'resources'])
      this.#registry.removeSingleMetric(`nodejs_active_${what}_total`)
    for (const direction of ['in', 'out'] as const) this.onBytes(direction, 0)
    for (const reason of ['ok', ...ACCESS_FAILURES] as const) this.onTokenCheck(reason, 0)
    for (const reason of LOGIN_FAILURES) this.onLoginFailure(reason, 0)
  }

  /** Counts refusals of malformed requests, too. `seconds`: from the head to the end of the response. */
  onRequest(route: RouteLabel, method: string | undefined, status: number, seconds: number): void {
    const known = method !== undefined && METHODS.has(method) ? method : 'other'
    this.#requests.add(`${route} ${known} ${status}`, { route, method: known, status: String(status) })
    this.#requestSeconds.get(route)?.observe(seconds)
  }

  onBytes(direction: 'in' | 'out', count: number): void {
    this.#bytes.add(direction, { direction }, count)
  }

  onTokenCheck(reason: 'ok' | AccessFailure, count = 1): void {
    this.#tokenChecks.add(reason, { result: reason === 'ok' ? 'accepted' : 'rejected', reason }, count)
  }

  onTokenIssued(): void {
    this.#tokensIssued++
  }

  onLinkIssued(): void {
    this.#linksIssued++
  }

  onLoginFailure(reason: LoginFailure, count = 1): void {
    this.#loginFailures.add(reason, { reason }, count)
  }

  ofUpstream(upstream: string): UpstreamEvents {
    const onOutcome = (outcome: UpstreamOutcome, count = 1) =>
      this.#upstreamRequests.add(`${upstream} ${outcome}`, { upstream, outcome }, count)
    const addResponse = (statusClass: string, count = 1) =>
      this.#upstreamResponses.add(`${upstream} ${statusClass}`, { upstream, class: statusClass }, count)
    for (const outcome of UPSTREAM_OUTCOMES) onOutcome(outcome, 0)
    for (const statusClass of STATUS_CLASSES) addResponse(statusClass, 0)
    const durations = new Durations()
    this.#upstreamSeconds.set(upstream, durations)
    return {
      onOutcome,
      onResponse: (status, seconds) => {
        const statusClass = STATUS_CLASSES[Math.floor(status / 100) - 2]
        if (statusClass !== undefined) addResponse(statusClass)
        durations.observe(seconds)
      },
    }
  }

  onReload(subject: ReloadSubject, result: ReloadResult, certificate = ''): void {
    this.#reloads.add(`${subject} ${result}`, { subject, result })
    const part = `${subject} ${certificate}`
    if (result === 'ok') {
      this.#lastGoodSeconds.set(subject, this.#now() / 1000)
      this.#failingReloads.delete(part)
    } else this.#failingReloads.add(part)
  }

  /** Called once. Returns the function that reads the metrics of this process. */
  readFrom(sources: MetricSources): ReadMetrics {
    const { config, tokenCache, listener, forwarder, isReady, processCounts } = sources
    const { keys, keySets, revocations, certificateSets, subjects } = sources.authData
    for (const subject of subjects) {
      for (const result of RELOAD_RESULTS) this.#reloads.add(`${subject} ${result}`, { subject, result }, 0)
      this.#lastGoodSeconds.set(subject, this.#now() / 1000)
    }
    const isFailing = (subject: ReloadSubject) =>
      [...this.#failingReloads].some((part) => part.startsWith(`${subject} `))
    const reads: Reads<Exclude<MetricName, ReadInPrimary>> = {
      build_info: () => [[{ version: VERSION, node: process.version }, 1]],
      certificate_not_after_timestamp_seconds: () =>
        Array.from(certificateSets, ([certificate, set]) => [{ certificate }, set.current().endsAtSeconds]),
      client_connections: () => listener.connections,
      client_connections_dropped_total: () => listener.droppedConnections,
      enforcing: () => Number(config.enforcement === 'enforce'),
      jwks_age_seconds: () => keySets.map(({ issuer, state }) => [{ issuer }, state().ageSeconds]),
      jwks_fetches_total: () =>
        keySets.flatMap(({ issuer, fetches }) =>
          RELOAD_RESULTS.map((result) => [{ issuer, result }, fetches[result]] as const),
        ),
      key_token_lifetime_seconds: () => keys.tokenLifetimes().map(({ kid, seconds }) => [{ kid }, seconds]),
      links_issued_total: () => this.#linksIssued,
      ready: () => Number(isReady()),
      reload_failing: () => subjects.map((subject) => [{ subject }, Number(isFailing(subject))]),
      reload_last_good_timestamp_seconds: () =>
        Array.from(this.#lastGoodSeconds, ([subject, seconds]) => [{ subject }, seconds]),
      reloads_total: this.#reloads.series,
      request_duration_seconds: () => this.#requestSeconds,
      requests_in_flight: () => listener.inFlight,
      requests_total: this.#requests.series,
      revocations: revocations.count,
      signing_key_age_seconds: () => {
        const { signing: key } = keys.ring()
        const nowSeconds = Math.floor(this.#now() / 1000)
        return key ? [[{ kid: key.kid }, Math.max(0, nowSeconds - key.createdAtSeconds)]] : []
      },
      token_cache_entries: () => tokenCache.counts.size,
      token_cache_evictions_total: () => tokenCache.counts.evictions,
      token_cache_hits_total: () => tokenCache.counts.hits,
      token_cache_misses_total: () => tokenCache.counts.misses,
      token_checks_total: this.#tokenChecks.series,
      token_issue_failures_total: this.#loginFailures.series,
      tokens_issued_total: () => this.#tokensIssued,
      transferred_bytes_total: this.#bytes.series,
      upstream_connections: () =>
        forwarder.pools().map(({ prefix, connections }) => [{ upstream: prefix }, connections]),
      upstream_queue: () => forwarder.pools().map(({ prefix, queued }) => [{ upstream: prefix }, queued]),
      upstream_requests_total: this.#upstreamRequests.series,
      upstream_response_seconds: () => this.#upstreamSeconds,
      upstream_responses_total: this.#upstreamResponses.series,
      ...processCounts,
    }
    return async (group) => {
      if (group === 'all') return [...familiesOf(reads), ...(await this.#registry.getMetricsAsJSON())]
      await this.#registry.getSingleMetric('process_cpu_user_seconds_total')?.get() // also updates the sum
      const ofProcess = PROCESS_METRICS.flatMap((name) => this.#registry.getSingleMetric(name)?.get() ?? [])
      return [...familiesOf(reads), ...(await Promise.all(ofProcess))]
    }
  }
}

/** The count of each series of a metric. `add` costs less than `inc` of prom-client. */
class Counts<Name extends MetricName> {
  readonly #series = new Map<string, { readonly labels: Labels<Name>; value: number }>()

  /** `key` identifies the series in this metric. To derive a key from `labels` would cost more. */
  add(key: string, labels: Labels<Name>, count = 1): void {
    const series = this.#series.get(key)
    if (series === undefined) this.#series.set(key, { labels, value: count })
    else series.value += count
  }

  readonly series = () => Array.from(this.#series.values(), ({ labels, value }) => [labels, value] as const)
}

/** One series of a histogram. Saves 4 % of the CPU time of a request, compared to prom-client's `observe` (Node 26). */
class Durations {
  /** Cumulative: each counts all durations up to its bound. */
  readonly #buckets = LATENCY_BUCKETS.map((le) => ({ le, value: 0 }))
  #count = 0
  #sum = 0

  observe(seconds: number): void {
    for (const bucket of this.#buckets) if (seconds <= bucket.le) bucket.value++
    this.#count++
    this.#sum += seconds
  }

  values(name: string, labels: Readonly<Record<string, string>>) {
    const buckets = [...this.#buckets, { le: '+Inf', value: this.#count }]
    return [
      ...buckets.map(({ le, value }) => ({ metricName: `${name}_bucket`, labels: { le, ...labels }, value })),
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: this.#count },
    ]
  }
}

/** Calls each function, and returns its metric in the form that `AggregatorRegistry.aggregate` takes. */
export function familiesOf<Names extends MetricName>(reads: Reads<Names>): MetricFamily[] {
  return (Object.keys(reads) as Names[]).map((key) => {
    const [help, [label = ''] = [], aggregator = 'sum']: Metric = METRICS[key]
    const name = `${METRIC_PREFIX}${key}`
    const result = reads[key]()
    if (result instanceof Map) {
      const values = Array.from(result, ([value, durations]) => durations.values(name, { [label]: value }))
      return { name, help, type: 'histogram', aggregator, values: values.flat() }
    }
    const series = typeof result === 'number' ? [[{}, result] as const] : result
    const values = series.flatMap(([labels, value]) => (value === undefined ? [] : { labels, value }))
    // OpenMetrics reserves this suffix for counters.
    return { name, help, type: key.endsWith('_total') ? 'counter' : 'gauge', aggregator, values }
  })
}
