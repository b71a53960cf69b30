/**
 * The Prometheus metrics: names, labels and values. Labels come from closed sets: no path, account or token.
 * Series whose labels are known beforehand exist at zero from the first scrape on.
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

/** Metrics set at start, changed by events, or written by `workers/primary.ts`. Names are without `auth_sidecar_`. */
const WRITTEN = {
  build_info: ['Version of the sidecar and of Node.', ['version', 'node'], 'max'],
  enforcing: ['1 while refused tokens are refused, 0 with enforcement: report.', [], 'min'],
  links_issued_total: ['Links issued.'],
  reload_failing: ['1 while the newest version cannot be used, else 0.', ['subject'], 'max'],
  reload_last_good_timestamp_seconds: ['When the active version was loaded.', ['subject'], 'min'],
  // All workers load the same version, so the total is the maximum of their counts, not the sum.
  reloads_total: ['New versions: active (ok) or unusable (failed).', ['subject', 'result'], 'max'],
  request_duration_seconds: ['Seconds from the request head to the end of the response.', ['route']],
  requests_total: ['Requests by route, method and status.', ['route', 'method', 'status']],
  token_checks_total: ['Token checks by result and reason.', ['result', 'reason']],
  token_issue_failures_total: ['Logins that ended without a token, by reason.', ['reason']],
  tokens_issued_total: ['Tokens issued.'],
  transferred_bytes_total: ['Body bytes from (in) and to (out) clients.', ['direction']],
  upstream_requests_total: ['Forwarded requests by upstream and outcome.', ['upstream', 'outcome']],
  upstream_responses_total: ['Responses by upstream and status class.', ['upstream', 'class']],
  upstream_response_seconds: ['Seconds from the request head to the response head.', ['upstream']],
  worker_restarts_total: ['Workers that ended and were replaced.'],
  workers: ['Processes that share the data listener, accept connections and respond to the primary.'],
} as const satisfies Record<string, Metric>

/** Metrics whose values are read from `MetricSources` at each scrape. */
const READ = {
  certificate_not_after_timestamp_seconds: ['When it expires, in epoch seconds.', ['certificate'], 'min'],
  client_connections: ['Open connections of clients.'],
  client_connections_dropped_total: ['Connections closed because limits.connections were open.'],
  jwks_age_seconds: ['Seconds since the issuer last sent a good JWK Set.', ['issuer'], 'max'],
  jwks_fetches_total: ['Fetches of JWK Sets by issuer and result.', ['issuer', 'result']],
  key_token_lifetime_seconds: ['Seconds that tokens of the key may live at most.', ['kid'], 'max'],
  log_lines_dropped_total: ['Log lines dropped because stdout was not read in time, or its disk was full.'],
  ready: ['1 while requests are accepted and everything they need is loaded, else 0.', [], 'min'],
  requests_in_flight: ['Requests that are served or wait, without tunnels.'],
  revocations: ['Active revocations.', [], 'max'],
  signing_key_age_seconds: ['Seconds since the key that signs was created.', ['kid'], 'max'],
  token_cache_entries: ['Tokens in the cache.'],
  token_cache_evictions_total: ['Tokens evicted from the full cache.'],
  token_cache_hits_total: ['Token checks decided by the cache.'],
  token_cache_misses_total: ['Token checks not decided by the cache.'],
  uncaught_exceptions_total: ['Exceptions that no request has caught. The process goes on.'],
  upstream_connections: ['Connections to the upstream, also those being opened.', ['upstream']],
  upstream_queue: ['Requests that wait for a connection to the upstream.', ['upstream']],
} as const satisfies Record<string, Metric>

const METRICS = { ...WRITTEN, ...READ }

export type MetricName = keyof typeof METRICS

export type LabelOf<Name extends MetricName> = NonNullable<(typeof METRICS)[Name][1]>[number]

export const METRIC_PREFIX = 'auth_sidecar_'

export const METRIC_NAMES = Object.keys(METRICS).map((name) => `${METRIC_PREFIX}${name}`)

/** The parts whose values are read at each scrape. */
export interface MetricSources {
  readonly authData: MeasuredAuthData
  readonly tokenCache: Pick<TokenCache, 'hits' | 'misses' | 'evictions' | 'size'>
  readonly listener: Pick<DataListener, 'inFlight' | 'connections' | 'droppedConnections'>
  readonly forwarder: Pick<Forwarder, 'pools'>
  readonly isReady: () => boolean
  readonly logLinesDropped: () => number
  readonly uncaughtExceptions: () => number
}

type SigningKey = Pick<Key, 'kid' | 'createdAtSeconds'>

export interface MeasuredAuthData extends Pick<AuthData, 'subjects'> {
  readonly keys: Pick<AuthData['keys'], 'tokenLifetimes'> & { ring(): { signing?: SigningKey | undefined } }
  readonly keySets: readonly Pick<RemoteKeys, 'issuer' | 'fetches' | 'state'>[]
  readonly revocations: Pick<AuthData['revocations'], 'count'>
  readonly certificateSets: ReadonlyMap<string, { current(): Pick<CertificateSet, 'endsAtSeconds'> }>
}

export type Metrics = ReturnType<typeof createMetrics>

/** Returns a function for each event that is counted. `readFrom` is called once, before the first scrape. */
export function createMetrics({ enforcement }: Pick<Config, 'enforcement'>, now: () => number) {
  const registry = new Registry()
  const create = metricsIn(registry)
  collectDefaultMetrics({ register: registry })
  // These gauges have names of counters. They only add up the types of `nodejs_active_handles` and the like.
  for (const what of ['handles', 'requests', 'resources'])
    registry.removeSingleMetric(`nodejs_active_${what}_total`)
  create.gauge('build_info').set({ version: VERSION, node: process.version }, 1)
  create.gauge('enforcing').set(Number(enforcement === 'enforce'))
  const { onReload, zeroReloads } = reloadMetrics(create, now)
  return {
    registry,
    ...requestMetrics(create),
    ...tokenMetrics(create),
    ofUpstream: upstreamMetrics(create),
    onReload,
    readFrom(sources: MetricSources): void {
      zeroReloads(sources.authData.subjects)
      readValues(create, sources, now)
    },
  }
}

type Create = ReturnType<typeof metricsIn>

function requestMetrics({ counts, histogram }: Create) {
  const requests = counts('requests_total')
  const bytes = counts('transferred_bytes_total')
  for (const direction of ['in', 'out']) bytes.add(direction, { direction }, 0)
  const durations = histogram('request_duration_seconds')
  for (const route of ROUTE_LABELS) durations.zero({ route })
  return {
    /** Counts refusals of malformed requests, too. `seconds`: from the head to the end of the response. */
    onRequest(route: RouteLabel, method: string | undefined, status: number, seconds: number): void {
      const known = method !== undefined && METHODS.has(method) ? method : 'other'
      requests.add(`${route} ${known} ${status}`, { route, method: known, status: String(status) })
      durations.observe({ route }, seconds)
    },
    onBytes: (direction: 'in' | 'out', count: number) => bytes.add(direction, { direction }, count),
  }
}

function tokenMetrics({ counts }: Create) {
  const checks = counts('token_checks_total')
  const issued = counts('tokens_issued_total')
  const linksIssued = counts('links_issued_total')
  const failures = counts('token_issue_failures_total')
  const onTokenCheck = (reason: 'ok' | AccessFailure, count = 1) =>
    checks.add(reason, { result: reason === 'ok' ? 'accepted' : 'rejected', reason }, count)
  const onLoginFailure = (reason: LoginFailure, count = 1) => failures.add(reason, { reason }, count)
  for (const reason of ['ok', ...ACCESS_FAILURES] as const) onTokenCheck(reason, 0)
  for (const reason of LOGIN_FAILURES) onLoginFailure(reason, 0)
  for (const unlabelled of [issued, linksIssued]) unlabelled.add('', {}, 0)
  return {
    onTokenCheck,
    onTokenIssued: () => issued.add('', {}),
    onLinkIssued: () => linksIssued.add('', {}),
    onLoginFailure,
  }
}

function upstreamMetrics({ counts, histogram }: Create) {
  const outcomes = counts('upstream_requests_total')
  const responses = counts('upstream_responses_total')
  const headSeconds = histogram('upstream_response_seconds')
  /** `upstream`: the prefix of the upstream. */
  return (upstream: string): UpstreamEvents => {
    const onOutcome = (outcome: UpstreamOutcome, count = 1) =>
      outcomes.add(`${upstream} ${outcome}`, { upstream, outcome }, count)
    const addResponse = (statusClass: string, count = 1) =>
      responses.add(`${upstream} ${statusClass}`, { upstream, class: statusClass }, count)
    for (const outcome of UPSTREAM_OUTCOMES) onOutcome(outcome, 0)
    for (const statusClass of STATUS_CLASSES) addResponse(statusClass, 0)
    headSeconds.zero({ upstream })
    return {
      onOutcome,
      onResponse(status, seconds) {
        const statusClass = STATUS_CLASSES[Math.floor(status / 100) - 2]
        if (statusClass !== undefined) addResponse(statusClass)
        headSeconds.observe({ upstream }, seconds)
      },
    }
  }
}

function reloadMetrics({ counts, gauge }: Create, now: () => number) {
  const reloads = counts('reloads_total')
  const lastGood = gauge('reload_last_good_timestamp_seconds')
  const reloadFailing = gauge('reload_failing')
  /** Subjects whose newest version cannot be used, each with the name of its certificate set. */
  const failing = new Set<string>()
  return {
    zeroReloads(subjects: readonly ReloadSubject[]): void {
      for (const subject of subjects) {
        for (const result of RELOAD_RESULTS) reloads.add(`${subject} ${result}`, { subject, result }, 0)
        lastGood.set({ subject }, now() / 1000)
        reloadFailing.set({ subject }, 0)
      }
    },
    onReload(subject: ReloadSubject, result: ReloadResult, certificate = ''): void {
      reloads.add(`${subject} ${result}`, { subject, result })
      const part = `${subject} ${certificate}`
      if (result === 'ok') {
        lastGood.set({ subject }, now() / 1000)
        failing.delete(part)
      } else failing.add(part)
      const isFailing = [...failing].some((one) => one.startsWith(`${subject} `))
      reloadFailing.set({ subject }, Number(isFailing))
    },
  }
}

function readValues({ value }: Create, sources: MetricSources, now: () => number): void {
  const { tokenCache, listener, forwarder, isReady, logLinesDropped, uncaughtExceptions } = sources
  const { keys, keySets, revocations, certificateSets } = sources.authData
  const reads: Readonly<Record<keyof typeof READ, ReadValue>> = {
    ready: () => Number(isReady()),
    requests_in_flight: () => listener.inFlight,
    client_connections: () => listener.connections,
    client_connections_dropped_total: () => listener.droppedConnections,
    token_cache_hits_total: () => tokenCache.hits,
    token_cache_misses_total: () => tokenCache.misses,
    token_cache_evictions_total: () => tokenCache.evictions,
    token_cache_entries: () => tokenCache.size,
    log_lines_dropped_total: logLinesDropped,
    uncaught_exceptions_total: uncaughtExceptions,
    upstream_connections: () =>
      forwarder.pools().map(({ prefix, connections }) => [{ upstream: prefix }, connections]),
    upstream_queue: () => forwarder.pools().map(({ prefix, queued }) => [{ upstream: prefix }, queued]),
    revocations: revocations.count,
    key_token_lifetime_seconds: () => keys.tokenLifetimes().map(({ kid, seconds }) => [{ kid }, seconds]),
    signing_key_age_seconds() {
      const { signing: key } = keys.ring()
      return key ? [[{ kid: key.kid }, Math.max(0, Math.floor(now() / 1000) - key.createdAtSeconds)]] : []
    },
    certificate_not_after_timestamp_seconds: () =>
      Array.from(certificateSets, ([certificate, set]) => [{ certificate }, set.current().endsAtSeconds]),
    jwks_age_seconds: () => keySets.map(({ issuer, state }) => [{ issuer }, state().ageSeconds]),
    jwks_fetches_total: () =>
      keySets.flatMap(({ issuer, fetches }) =>
        RELOAD_RESULTS.map((result) => [{ issuer, result }, fetches[result]] as const),
      ),
  }
  for (const name of Object.keys(READ) as (keyof typeof READ)[]) value(name, reads[name])
}

/** The count of each series of a metric. `add` costs less than `inc` of prom-client. */
class Counts<Label extends string> {
  readonly #series = new Map<string, { readonly labels: Readonly<Record<Label, string>>; value: number }>()

  /** `key` identifies the series in this metric. To derive a key from `labels` would cost more. */
  add(key: string, labels: Readonly<Record<Label, string>>, count = 1): void {
    const series = this.#series.get(key)
    if (series === undefined) this.#series.set(key, { labels, value: count })
    else series.value += count
  }

  readonly samples = (): Sample[] => Array.from(this.#series.values(), ({ labels, value }) => [labels, value])
}

type Labels = Readonly<Record<string, string>>
type Sample = readonly [labels: Labels, value: number | undefined]
/** Returns one value, or one per series. A series without a value is left out. */
type ReadValue = () => number | readonly Sample[]

export function metricsIn(registry: Registry) {
  const optionsOf = (name: MetricName) => {
    const [help, labels = [], aggregator = 'sum']: Metric = METRICS[name]
    return { name: `${METRIC_PREFIX}${name}`, help, labelNames: labels, aggregator, registers: [registry] }
  }
  const value = (name: MetricName, read: ReadValue): void => {
    const collected = {
      ...optionsOf(name),
      collect(this: Counter | Gauge) {
        const values = read()
        this.reset()
        for (const [labels, value] of typeof values === 'number' ? [[{}, values] as const] : values)
          if (value !== undefined) this.inc(labels, value)
      },
    }
    // OpenMetrics reserves this suffix for counters.
    if (name.endsWith('_total')) new Counter(collected)
    else new Gauge(collected)
  }
  return {
    value,
    counts<Name extends keyof typeof WRITTEN>(name: Name) {
      const counts = new Counts<LabelOf<Name>>()
      value(name, counts.samples)
      return counts
    },
    gauge: (name: MetricName) => new Gauge(optionsOf(name)),
    histogram: (name: MetricName) => new Histogram({ ...optionsOf(name), buckets: LATENCY_BUCKETS }),
  }
}
