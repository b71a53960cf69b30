/**
 * The Prometheus metrics: names, labels and values. Labels come from closed sets: no path, account or token.
 * Series whose labels are known beforehand exist at zero from the first scrape on.
 * A new metric needs a row in `READ` and its value in `readFrom`. If it counts events, it also needs a `Counts`, a method that the
 * owner of the event calls, and in the constructor its series at zero. A histogram needs a row in `HISTOGRAMS`, and a method.
 */
import { type Aggregator, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { AuthData } from '../auth/auth-data.ts'
import type { ReloadSubject } from '../auth/auth-sources.ts'
import type { AccessFailure, LoginFailure } from '../base/failures.ts'
import { ACCESS_FAILURES, LOGIN_FAILURES, UPSTREAM_OUTCOMES, type UpstreamOutcome } from '../base/failures.ts'
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
/** The classes of upstream responses that are counted. */
const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx']
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** `aggregator`: how the values of several processes become one. The default is their sum. */
type Metric = readonly [help: string, labels?: readonly string[], aggregator?: Aggregator]

/** Metrics whose values are read at each scrape. Names are without `auth_sidecar_`. */
const READ = {
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
  upstream_responses_total: ['Responses by upstream and status class.', ['upstream', 'class']],
} as const satisfies Record<string, Metric>

const HISTOGRAMS = {
  request_duration_seconds: ['Seconds from the request head to the end of the response.', ['route']],
  upstream_response_seconds: ['Seconds from the request head to the response head.', ['upstream']],
} as const satisfies Record<string, Metric>

/** Also read at each scrape, but only in the primary process of several workers. */
const READ_IN_PRIMARY = {
  worker_restarts_total: ['Workers that ended and were replaced.'],
  workers: ['Processes that share the data listener, accept connections and respond to the primary.'],
} as const satisfies Record<string, Metric>

const METRICS = { ...READ, ...HISTOGRAMS, ...READ_IN_PRIMARY }

export type MetricName = keyof typeof METRICS

export type LabelOf<Name extends MetricName> = NonNullable<(typeof METRICS)[Name][1]>[number]

type Labels<Name extends MetricName> = Readonly<Record<LabelOf<Name>, string>>
type Sample<Name extends MetricName> = readonly [labels: Labels<Name>, value: number | undefined]

/** A function for each metric. It returns one value, or one per series. A series without a value is left out. */
type Reads<Names extends MetricName> = { readonly [Name in Names]: () => number | readonly Sample<Name>[] }

export type PrimaryReads = Reads<
  keyof typeof READ_IN_PRIMARY | 'ready' | 'log_lines_dropped_total' | 'uncaught_exceptions_total'
>

export const METRIC_PREFIX = 'auth_sidecar_'
export const METRIC_NAMES = Object.keys(METRICS).map((name) => `${METRIC_PREFIX}${name}`)

/** What each process counts, whatever it serves. */
export type ProcessCounts = Readonly<Record<'logLinesDropped' | 'uncaughtExceptions', () => number>>

/** The parts whose values are read at each scrape. */
export interface MetricSources {
  readonly config: Pick<Config, 'enforcement'>
  readonly authData: MeasuredAuthData
  readonly tokenCache: Pick<TokenCache, 'hits' | 'misses' | 'evictions' | 'size'>
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
  readonly registry = new Registry()
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
  readonly #requestSeconds = histogramIn(this.registry, 'request_duration_seconds')
  readonly #upstreamSeconds = histogramIn(this.registry, 'upstream_response_seconds')
  #tokensIssued = 0
  #linksIssued = 0

  constructor(now: () => number) {
    this.#now = now
    collectDefaultMetrics({ register: this.registry })
    // These gauges have names of counters. They only add up the types of `nodejs_active_handles` and the like.
    for (const what of ['handles', 'requests', 'resources'])
      this.registry.removeSingleMetric(`nodejs_active_${what}_total`)
    for (const route of ROUTE_LABELS) this.#requestSeconds.zero({ route })
    for (const direction of ['in', 'out'] as const) this.onBytes(direction, 0)
    for (const reason of ['ok', ...ACCESS_FAILURES] as const) this.onTokenCheck(reason, 0)
    for (const reason of LOGIN_FAILURES) this.onLoginFailure(reason, 0)
  }

  /** Counts refusals of malformed requests, too. `seconds`: from the head to the end of the response. */
  onRequest(route: RouteLabel, method: string | undefined, status: number, seconds: number): void {
    const known = method !== undefined && METHODS.has(method) ? method : 'other'
    this.#requests.add(`${route} ${known} ${status}`, { route, method: known, status: String(status) })
    this.#requestSeconds.observe({ route }, seconds)
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

  /** `upstream`: the prefix of the upstream. */
  ofUpstream(upstream: string): UpstreamEvents {
    const onOutcome = (outcome: UpstreamOutcome, count = 1) =>
      this.#upstreamRequests.add(`${upstream} ${outcome}`, { upstream, outcome }, count)
    const addResponse = (statusClass: string, count = 1) =>
      this.#upstreamResponses.add(`${upstream} ${statusClass}`, { upstream, class: statusClass }, count)
    for (const outcome of UPSTREAM_OUTCOMES) onOutcome(outcome, 0)
    for (const statusClass of STATUS_CLASSES) addResponse(statusClass, 0)
    this.#upstreamSeconds.zero({ upstream })
    return {
      onOutcome,
      onResponse: (status, seconds) => {
        const statusClass = STATUS_CLASSES[Math.floor(status / 100) - 2]
        if (statusClass !== undefined) addResponse(statusClass)
        this.#upstreamSeconds.observe({ upstream }, seconds)
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

  /** Called once, before the first scrape. */
  readFrom(sources: MetricSources): void {
    const { config, tokenCache, listener, forwarder, isReady, processCounts } = sources
    const { keys, keySets, revocations, certificateSets, subjects } = sources.authData
    for (const subject of subjects) {
      for (const result of RELOAD_RESULTS) this.#reloads.add(`${subject} ${result}`, { subject, result }, 0)
      this.#lastGoodSeconds.set(subject, this.#now() / 1000)
    }
    const isFailing = (subject: ReloadSubject) =>
      [...this.#failingReloads].some((part) => part.startsWith(`${subject} `))
    const reads: Reads<keyof typeof READ> = {
      build_info: () => [[{ version: VERSION, node: process.version }, 1]],
      enforcing: () => Number(config.enforcement === 'enforce'),
      ready: () => Number(isReady()),
      requests_total: this.#requests.samples,
      requests_in_flight: () => listener.inFlight,
      transferred_bytes_total: this.#bytes.samples,
      client_connections: () => listener.connections,
      client_connections_dropped_total: () => listener.droppedConnections,
      token_checks_total: this.#tokenChecks.samples,
      token_cache_hits_total: () => tokenCache.hits,
      token_cache_misses_total: () => tokenCache.misses,
      token_cache_evictions_total: () => tokenCache.evictions,
      token_cache_entries: () => tokenCache.size,
      tokens_issued_total: () => this.#tokensIssued,
      token_issue_failures_total: this.#loginFailures.samples,
      links_issued_total: () => this.#linksIssued,
      log_lines_dropped_total: processCounts.logLinesDropped,
      uncaught_exceptions_total: processCounts.uncaughtExceptions,
      upstream_requests_total: this.#upstreamRequests.samples,
      upstream_responses_total: this.#upstreamResponses.samples,
      upstream_connections: () =>
        forwarder.pools().map(({ prefix, connections }) => [{ upstream: prefix }, connections]),
      upstream_queue: () => forwarder.pools().map(({ prefix, queued }) => [{ upstream: prefix }, queued]),
      revocations: revocations.count,
      key_token_lifetime_seconds: () => keys.tokenLifetimes().map(({ kid, seconds }) => [{ kid }, seconds]),
      signing_key_age_seconds: () => {
        const { signing: key } = keys.ring()
        const nowSeconds = Math.floor(this.#now() / 1000)
        return key ? [[{ kid: key.kid }, Math.max(0, nowSeconds - key.createdAtSeconds)]] : []
      },
      certificate_not_after_timestamp_seconds: () =>
        Array.from(certificateSets, ([certificate, set]) => [{ certificate }, set.current().endsAtSeconds]),
      jwks_age_seconds: () => keySets.map(({ issuer, state }) => [{ issuer }, state().ageSeconds]),
      jwks_fetches_total: () =>
        keySets.flatMap(({ issuer, fetches }) =>
          RELOAD_RESULTS.map((result) => [{ issuer, result }, fetches[result]] as const),
        ),
      reloads_total: this.#reloads.samples,
      reload_last_good_timestamp_seconds: () =>
        Array.from(this.#lastGoodSeconds, ([subject, seconds]) => [{ subject }, seconds]),
      reload_failing: () => subjects.map((subject) => [{ subject }, Number(isFailing(subject))]),
    }
    readAtScrape(this.registry, reads)
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

  readonly samples = (): Sample<Name>[] =>
    Array.from(this.#series.values(), ({ labels, value }) => [labels, value])
}

/** Registers metrics, and calls their functions at each scrape. */
export function readAtScrape<Names extends MetricName>(registry: Registry, reads: Reads<Names>): void {
  for (const name of Object.keys(reads) as Names[]) {
    const options = {
      ...optionsOf(registry, name),
      collect(this: Counter | Gauge) {
        const values = reads[name]()
        this.reset()
        for (const [labels, value] of typeof values === 'number' ? [[{}, values] as const] : values)
          if (value !== undefined) this.inc(labels, value)
      },
    }
    // OpenMetrics reserves this suffix for counters.
    if (name.endsWith('_total')) new Counter(options)
    else new Gauge(options)
  }
}

const histogramIn = (registry: Registry, name: keyof typeof HISTOGRAMS) =>
  new Histogram({ ...optionsOf(registry, name), buckets: LATENCY_BUCKETS })

function optionsOf(registry: Registry, name: MetricName) {
  const [help, labels = [], aggregator = 'sum']: Metric = METRICS[name]
  return { name: `${METRIC_PREFIX}${name}`, help, labelNames: labels, aggregator, registers: [registry] }
}
