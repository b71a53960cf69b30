/**
 * The state of the sidecar, as the status page and `/status.json` show it.
 * In: metrics, readiness, some settings. Out: what is wrong now, rates of now, counts of ten minutes. Nothing in it is secret.
 */
import {
  Columns,
  type Labels,
  type MetricFamily,
  percentiles,
  rounded,
  type Sample,
  total,
} from './samples.ts'

const SAMPLE_EVERY_MS = 5000
/** Ten minutes of steps between samples. */
const MAX_SAMPLES = 121
/** Rates of now are those of so many steps: 30 seconds. */
const STEPS_OF_NOW = 6

/** One condition of readiness. */
export interface ReadyCheck {
  readonly name: string
  readonly ok: boolean
  /** In a word or two, where there is more to say. */
  readonly state?: string
}

export interface StatusOptions {
  readonly version: string
  /** The metrics of this process, or of all workers. */
  readonly metrics: () => Promise<readonly MetricFamily[]>
  /** Every condition of readiness. */
  readonly ready: () => readonly ReadyCheck[] | Promise<readonly ReadyCheck[]>
  /** Setting `upstreams`. */
  readonly upstreams: readonly { readonly prefix: string; readonly url: string }[]
  /** Setting `credentials`. */
  readonly credentials: { readonly file?: string | undefined; readonly postgres?: object | undefined }
  /** Tokens that fit into the caches of all processes. */
  readonly cacheCapacity: number
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called when a sample could not be taken. */
  readonly onFault: (error: Error) => void
}

export type Status = Awaited<ReturnType<StatusReporter['report']>>
export type StatusReporter = ReturnType<typeof createStatusReporter>

/** One point of the charts: the step between two samples. */
interface Point {
  readonly time: number
  readonly requests: number
  readonly failing: number
  readonly refused: ReadonlyMap<string, number>
  readonly p50: number | null
  readonly p99: number | null
}

/** Creates the reporter. It takes samples between `start` and `stop`. */
export function createStatusReporter(options: StatusOptions) {
  const { version, upstreams, now } = options
  const startedAt = now()
  const columns = new Columns()
  const samples: Sample[] = []
  const points: Point[] = []
  const upstreamEvents = new Map<string, { lastOkAt?: number; lastFault?: { outcome: string; at: number } }>()
  let watched: Sample | undefined
  let timer: NodeJS.Timeout | undefined

  /** Notes which upstreams answered and which failed since the last call. */
  const watchUpstreams = (to: Sample): void => {
    const from = watched ?? to
    watched = to
    for (const { prefix } of upstreams) {
      const outcomes = outcomesOf(from, to, prefix)
      const event = upstreamEvents.get(prefix) ?? {}
      if ((outcomes.get('ok') ?? 0) > 0) event.lastOkAt = to.at
      const [outcome] = faultsIn(outcomes).keys()
      if (outcome !== undefined) event.lastFault = { outcome, at: to.at }
      upstreamEvents.set(prefix, event)
    }
  }
  const outcomesOf = (from: Sample, to: Sample, upstream: string) =>
    columns.growthBy(from, to, 'auth_sidecar_upstream_requests_total', 'outcome', { upstream })
  const refusedIn = (from: Sample, to: Sample) =>
    columns.growthBy(from, to, 'auth_sidecar_token_checks_total', 'reason', { result: 'rejected' })
  /** Forwarded requests by status: what "failing" is a share of, on the dashboard and in the alerts too. */
  const proxied = (from: Sample, to: Sample) => {
    const route = { route: 'proxy' }
    const byStatus = columns.growthBy(from, to, 'auth_sidecar_requests_total', 'status', route)
    const failing = total(new Map([...byStatus].filter(([status]) => status.startsWith('5'))))
    return { count: total(byStatus), failing }
  }
  const durationsIn = (from: Sample, to: Sample, where: Labels = {}) =>
    columns.growthBy(from, to, 'auth_sidecar_request_duration_seconds', 'le', where)

  const take = async (): Promise<void> => {
    const to = columns.read(await options.metrics(), now())
    const from = samples.at(-1)
    samples.push(to)
    if (samples.length > MAX_SAMPLES) samples.shift()
    watchUpstreams(to)
    if (from === undefined || to.at <= from.at) return
    const perSecond = (count: number) => rounded(count / ((to.at - from.at) / 1000))
    const { p50Seconds, p99Seconds } = percentiles(durationsIn(from, to))
    points.push({
      time: Math.round(to.at / 1000),
      requests: perSecond(total(columns.growthBy(from, to, 'auth_sidecar_requests_total', 'status'))),
      failing: perSecond(proxied(from, to).failing),
      refused: new Map([...refusedIn(from, to)].map(([reason, count]) => [reason, perSecond(count)])),
      p50: p50Seconds,
      p99: p99Seconds,
    })
    if (points.length > MAX_SAMPLES - 1) points.shift()
  }

  const report = async () => {
    const families = await options.metrics()
    const checks = await options.ready()
    const to = columns.read(families, now())
    const from = samples[0] ?? to
    const recently = samples.at(-STEPS_OF_NOW - 1) ?? from
    watchUpstreams(to)
    const nowSeconds = (to.at - recently.at) / 1000
    const perSecond = (count: number) => (nowSeconds > 0 ? rounded(count / nowSeconds) : null)
    const grown = (metric: string, label = '') => columns.growthBy(from, to, metric, label)
    const grownNow = (metric: string, label = '') => columns.growthBy(recently, to, metric, label)
    const value = (name: string, labels: Labels = {}) => sumOf(families, name, labels)

    const statuses = grown('auth_sidecar_requests_total', 'status')
    const failing = proxied(from, to)
    const failingNow = proxied(recently, to)
    const refused = refusedIn(from, to)
    const refusedNow = refusedIn(recently, to)
    const hits = total(grown('auth_sidecar_token_cache_hits_total'))
    const misses = total(grown('auth_sidecar_token_cache_misses_total'))
    const failures = grown('auth_sidecar_token_issue_failures_total', 'reason')
    const routes = [...grown('auth_sidecar_request_duration_seconds', 'route').keys()]
    const lifetimes = seriesOf(families, 'auth_sidecar_key_token_lifetime_seconds')
    const signer = seriesOf(families, 'auth_sidecar_signing_key_age_seconds')[0]
    return {
      time: new Date(to.at).toISOString(),
      version,
      node: process.version,
      startedAt: new Date(startedAt).toISOString(),
      uptimeSeconds: Math.floor((to.at - startedAt) / 1000),
      ready: checks.every(({ ok }) => ok),
      draining: checks.some(({ state }) => state === 'draining'),
      enforcing: value('auth_sidecar_enforcing') !== 0,
      checks,
      window: { seconds: rounded((to.at - from.at) / 1000), nowSeconds: rounded(nowSeconds) },
      requests: {
        perSecond: perSecond(total(grownNow('auth_sidecar_requests_total'))),
        count: total(statuses),
        byStatus: byClass(statuses),
        failing: failing.failing,
        failingRatio: share(failingNow.failing, failingNow.count),
        inFlight: value('auth_sidecar_requests_in_flight') ?? 0,
        connections: value('auth_sidecar_client_connections') ?? 0,
      },
      rejections: {
        perSecond: perSecond(total(refusedNow)),
        count: total(refused),
        byReason: [...refused].map(([reason, count]) => ({
          reason,
          count,
          perSecond: perSecond(refusedNow.get(reason) ?? 0),
        })),
      },
      latency: ['all', ...routes]
        .map((route) => {
          const buckets = durationsIn(from, to, route === 'all' ? {} : { route })
          return { route, count: buckets.get('+Inf') ?? 0, ...percentiles(buckets) }
        })
        .filter(({ route, count }) => count > 0 || route === 'all'),
      latencyNow: percentiles(durationsIn(recently, to)),
      cache: {
        hitRatio: share(hits, hits + misses),
        entries: value('auth_sidecar_token_cache_entries') ?? 0,
        capacity: options.cacheCapacity,
      },
      logins: {
        issued: total(grown('auth_sidecar_tokens_issued_total')),
        failed: total(failures),
        byReason: Object.fromEntries(failures),
      },
      keys: lifetimes.map(({ labels: { kid }, value: tokensLiveSeconds }) => {
        const signs = kid === signer?.labels['kid']
        return {
          kid: String(kid),
          signs,
          ageSeconds: signs ? (signer?.value ?? null) : null,
          tokensLiveSeconds,
        }
      }),
      issuer: families.some(({ name }) => name === 'auth_sidecar_jwks_age_seconds')
        ? { ageSeconds: value('auth_sidecar_jwks_age_seconds') ?? null }
        : null,
      certificates: seriesOf(families, 'auth_sidecar_certificate_not_after_timestamp_seconds').map(
        (series) => ({
          certificate: String(series.labels['certificate']),
          expiresAt: new Date(series.value * 1000).toISOString(),
          secondsLeft: Math.floor(series.value - to.at / 1000),
        }),
      ),
      upstreams: upstreams.map(({ prefix, url }) => {
        const outcomes = outcomesOf(from, to, prefix)
        const count = total(outcomes)
        const failed = total(faultsIn(outcomes))
        const failedNow = total(faultsIn(outcomesOf(recently, to, prefix)))
        const { lastOkAt = 0, lastFault } = upstreamEvents.get(prefix) ?? {}
        const isDown = lastFault !== undefined && lastFault.at > lastOkAt
        const buckets = columns.growthBy(from, to, 'auth_sidecar_upstream_response_seconds', 'le', {
          upstream: prefix,
        })
        return {
          prefix,
          address: addressOf(url),
          state: isDown ? 'failing' : failedNow > 0 ? 'degraded' : count > 0 ? 'ok' : 'idle',
          count,
          failed,
          failedRatio: share(failed, count),
          outcomes: Object.fromEntries([...outcomes].filter(([, occurred]) => occurred > 0)),
          lastFault:
            lastFault === undefined
              ? null
              : { outcome: lastFault.outcome, time: new Date(lastFault.at).toISOString() },
          firstByte: percentiles(buckets),
          connections: value('auth_sidecar_upstream_connections', { upstream: prefix }) ?? 0,
          queued: value('auth_sidecar_upstream_queue', { upstream: prefix }) ?? 0,
        }
      }),
      credentials: credentialsState(options.credentials, checks),
      revocations: value('auth_sidecar_revocations') ?? 0,
      reloads: seriesOf(families, 'auth_sidecar_reload_failing').map(
        ({ labels: { subject }, value: isFailing }) => ({
          subject: String(subject),
          ok: value('auth_sidecar_reloads_total', { subject, result: 'ok' }) ?? 0,
          failed: value('auth_sidecar_reloads_total', { subject, result: 'failed' }) ?? 0,
          failing: isFailing > 0,
          lastGoodAt: new Date(
            (value('auth_sidecar_reload_last_good_timestamp_seconds', { subject }) ?? 0) * 1000,
          ).toISOString(),
        }),
      ),
      process: {
        cpuRatio: perSecond(total(grownNow('process_cpu_seconds_total'))),
        rssBytes: value('process_resident_memory_bytes') ?? 0,
        logLinesDropped: value('auth_sidecar_log_lines_dropped_total') ?? 0,
      },
      series: {
        times: points.map(({ time }) => time),
        requestsPerSecond: points.map(({ requests }) => requests),
        failingPerSecond: points.map(({ failing: value }) => value),
        rejectionsPerSecond: Object.fromEntries(
          [...refused.keys()].map((reason) => [
            reason,
            points.map((point) => point.refused.get(reason) ?? 0),
          ]),
        ),
        p50Seconds: points.map(({ p50 }) => p50),
        p99Seconds: points.map(({ p99 }) => p99),
      },
    }
  }

  const sample = () => take().catch(options.onFault)
  return {
    /** Takes a sample now and every five seconds. Does not keep the process alive. */
    start(): void {
      if (timer !== undefined) return
      void sample()
      timer = setInterval(sample, SAMPLE_EVERY_MS).unref()
    },
    stop(): void {
      clearInterval(timer)
      timer = undefined
    },
    /** Takes a sample at once. */
    sample,
    /** The state now. Rejects when the metrics cannot be read. */
    report,
  }
}

/** Outcomes that are a fault of the upstream or of the sidecar, most frequent first. */
function faultsIn(outcomes: ReadonlyMap<string, number>): Map<string, number> {
  const faults = [...outcomes].filter(
    ([outcome, count]) => count > 0 && outcome !== 'ok' && !outcome.startsWith('client_'),
  )
  return new Map(faults.sort(([, a], [, b]) => b - a))
}

function byClass(statuses: ReadonlyMap<string, number>): Record<string, number> {
  const classes: Record<string, number> = {}
  for (const [status, count] of statuses) {
    const name = `${status.slice(0, 1)}xx`
    classes[name] = (classes[name] ?? 0) + count
  }
  return classes
}

function credentialsState(
  { file, postgres }: StatusOptions['credentials'],
  checks: readonly ReadyCheck[],
): { readonly kind: string; readonly state: string } {
  if (file === undefined && postgres === undefined)
    return { kind: 'none', state: 'this sidecar only verifies' }
  const check = checks.find(({ name }) => name === 'credentials')
  const state = check?.state ?? (check?.ok === true ? 'loaded' : 'not loaded')
  return { kind: file === undefined ? 'PostgreSQL' : 'file', state }
}

function seriesOf(families: readonly MetricFamily[], name: string): MetricFamily['values'] {
  return families.find((family) => family.name === name)?.values ?? []
}

/** The sum of the series that have these labels; undefined where there is none. */
function sumOf(families: readonly MetricFamily[], name: string, labels: Labels): number | undefined {
  const wanted = Object.entries(labels)
  const found = seriesOf(families, name).filter((series) =>
    wanted.every(([label, value]) => series.labels[label] === value),
  )
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0)
}

/** Scheme, host and port of an upstream, or the path of its socket: a URL may hold more. */
function addressOf(url: string): string {
  if (url.startsWith('unix:')) return url
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}

/** From 0 to 1; null where there is no whole. */
function share(part: number, whole: number): number | null {
  return whole > 0 ? rounded(part / whole) : null
}
