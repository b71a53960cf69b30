/**
 * Tells the state of this sidecar, for people who look and for `/status.json`.
 *
 * In: metrics, the checks of readiness, keys, some settings. Out: a `Status`, made when somebody asks. Between two
 * questions it only takes a sample now and then.
 *
 * @module
 */
import type { Awaitable, ReadyCheck } from '../admin.ts'
import { describeUpstreams, type UpstreamPlace } from './describe-upstreams.ts'
import { measureEventLoop } from './event-loop-lag.ts'
import { type MetricFamily, seriesOf, valueIn } from './metric-families.ts'
import { createSampler, type EventLoopLag, type Sample, type SamplerOptions } from './sampler.ts'
import type { Status, StatusKey, StatusReload, StatusSeries } from './status.ts'
import {
  byFirst,
  bySecond,
  countOf,
  type Growth,
  observations,
  percentiles,
  perSecond,
  rounded,
  share,
  total,
  type Window,
  windowOf,
} from './window.ts'

/** What the state is made of. */
export interface StatusReporterOptions {
  readonly version: string
  /** The metrics of this process, or of all that share the listener. */
  readonly source: SamplerOptions['source']
  /** Every condition of readiness. */
  readonly ready: () => Awaitable<readonly ReadyCheck[]>
  /** The keys in force. */
  readonly keys: () => Awaitable<readonly StatusKey[]>
  /** Setting `upstreams`. */
  readonly upstreams: readonly UpstreamPlace[]
  /** Setting `credentials`. */
  readonly credentials: { readonly file?: string | undefined; readonly postgres?: object | undefined }
  /** Setting `cache.maxTokens`. */
  readonly cacheCapacity: number
  /** The resident memory of whatever serves the requests. */
  readonly rssBytes: () => Awaitable<number>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told why a sample could not be taken. */
  readonly onFault: (error: Error) => void
  /** Milliseconds between two samples; default 5000. */
  readonly everyMs?: number
}

/** Tells the state. */
export interface StatusReporter {
  /** Begins to take samples. */
  start(): void
  /** Takes no more. */
  stop(): void
  /** Takes a sample before its time. */
  sample(): Promise<void>
  /** The state now. Rejects when the metrics cannot be had. */
  report(): Promise<Status>
}

/** Makes a reporter; samples are taken from `start` on. */
export function createStatusReporter(options: StatusReporterOptions): StatusReporter {
  const { source, now, onFault, everyMs } = options
  const startedAt = now()
  let meter: ReturnType<typeof measureEventLoop> | undefined
  const sampler = createSampler({
    source,
    now,
    onFault,
    lag: (reset) => meter?.read(reset) ?? { p99Seconds: 0, worstSeconds: 0 },
    ...(everyMs === undefined ? {} : { everyMs }),
  })

  return {
    start() {
      meter ??= measureEventLoop()
      sampler.start()
    },
    stop() {
      sampler.stop()
      meter?.stop()
      meter = undefined
    },
    sample: sampler.take,
    async report() {
      const { families, sample } = await sampler.look()
      const kept = sampler.samples()
      const window = windowOf([...kept, sample], sampler.columns)
      const steps = windowOf(kept, sampler.columns).steps()
      const last = steps.at(-1)
      const checks = await options.ready()
      const value = (...wanted: Parameters<typeof valueIn> extends [unknown, ...infer Rest] ? Rest : never) =>
        valueIn(families, ...wanted) ?? 0
      const answers = window.grown('answers')
      const rejections = rejectionsIn(window)
      const hits = total(window.grown('hits'))
      const misses = total(window.grown('misses'))
      const failures = window.grown('failures')
      return {
        time: new Date(sample.at).toISOString(),
        version: options.version,
        node: process.version,
        startedAt: new Date(startedAt).toISOString(),
        uptimeSeconds: Math.floor((sample.at - startedAt) / 1000),
        ready: checks.every(({ ok }) => ok),
        checks,
        window: {
          seconds: rounded(window.seconds),
          everySeconds: sampler.everyMs / 1000,
          collecting: last === undefined,
        },
        requests: {
          count: total(answers),
          perSecond: last === undefined ? null : perSecond(total(last.grown('answers')), last.seconds),
          byStatus: Object.fromEntries(answers),
          errorRatio: share(countOf(answers, '5xx'), total(answers)),
          inFlight: value('auth_sidecar_requests_in_flight'),
          connections: value('auth_sidecar_client_connections'),
        },
        rejections: {
          count: total(rejections),
          perSecond: last === undefined ? null : perSecond(total(rejectionsIn(last)), last.seconds),
          byReason: Object.fromEntries(rejections),
        },
        latency: latencyIn(window),
        cache: {
          hits,
          misses,
          hitRatio: share(hits, hits + misses),
          entries: value('auth_sidecar_token_cache_entries'),
          capacity: options.cacheCapacity,
          evictions: value('auth_sidecar_token_cache_evictions_total'),
        },
        logins: {
          issued: total(window.grown('issued')),
          failed: total(failures),
          byReason: Object.fromEntries(failures),
        },
        keys: await options.keys(),
        issuer: issuerOf(families),
        upstreams: describeUpstreams(options.upstreams, {
          window,
          steps: [...steps, windowOf([...kept.slice(-1), sample], sampler.columns)],
          families,
        }),
        credentials: credentialsOf(options.credentials, checks),
        revocations: { inForce: value('auth_sidecar_revocations') },
        reloads: reloadsIn(families),
        process: {
          rssBytes: await options.rssBytes(),
          eventLoopLagP99Seconds: rounded(sample.lag.p99Seconds),
          eventLoopLagWorstSeconds: rounded(worstLag([...kept, sample])),
          logLinesDropped: value('auth_sidecar_log_lines_dropped_total'),
        },
        series: seriesIn(steps),
      }
    },
  }
}

/** Token checks that did not end well, by reason. */
function rejectionsIn(window: Window): Growth {
  const checks = new Map(window.grown('checks'))
  checks.delete('ok')
  return checks
}

function latencyIn(window: Window): Status['latency'] {
  const durations = window.grown('durations')
  return [['all', bySecond(durations)] as const, ...byFirst(durations)]
    .map(([route, buckets]) => ({ route, count: observations(buckets), ...percentiles(buckets) }))
    .filter(({ route, count }) => count > 0 || route === 'all')
}

/** Whether there is another issuer is known by the counter of fetches, which only then exists. */
function issuerOf(families: readonly MetricFamily[]): Status['issuer'] {
  if (!families.some(({ name }) => name === 'auth_sidecar_jwks_age_seconds')) return null
  return { ageSeconds: valueIn(families, 'auth_sidecar_jwks_age_seconds') ?? null }
}

function credentialsOf(
  { file, postgres }: StatusReporterOptions['credentials'],
  checks: readonly ReadyCheck[],
): Status['credentials'] {
  if (file === undefined && postgres === undefined)
    return { kind: 'none', state: 'this sidecar only verifies' }
  const check = checks.find(({ name }) => name === 'credentials')
  return {
    kind: file === undefined ? 'postgres' : 'file',
    state: check?.state ?? (check?.ok === true ? 'loaded' : 'not loaded'),
  }
}

function reloadsIn(families: readonly MetricFamily[]): readonly StatusReload[] {
  const subjects = new Set(
    seriesOf(families, 'auth_sidecar_reloads_total').map(({ labels }) => String(labels['subject'])),
  )
  return [...subjects].map((subject) => {
    const count = (result: string) =>
      valueIn(families, 'auth_sidecar_reloads_total', { subject, result }) ?? 0
    const good = valueIn(families, 'auth_sidecar_reload_last_good_timestamp_seconds', { subject })
    return {
      subject,
      ok: count('ok'),
      failed: count('failed'),
      failing: (valueIn(families, 'auth_sidecar_reload_failing', { subject }) ?? 0) > 0,
      lastGoodAt: good === undefined ? null : new Date(good * 1000).toISOString(),
    }
  })
}

function worstLag(samples: readonly { readonly lag: EventLoopLag }[]): Sample['lag']['worstSeconds'] {
  return samples.reduce((worst, { lag }) => Math.max(worst, lag.worstSeconds), 0)
}

function seriesIn(steps: readonly Window[]): StatusSeries {
  const answers = steps.map((step) => ({ seconds: step.seconds, grown: step.grown('answers') }))
  const rejections = steps.map((step) => ({ seconds: step.seconds, grown: rejectionsIn(step) }))
  const reasons = [...(rejections.at(-1)?.grown.keys() ?? [])]
  const durations = steps.map((step) => percentiles(bySecond(step.grown('durations'))))
  return {
    times: steps.map(({ until }) => Math.round(until / 1000)),
    requestsPerSecond: answers.map(({ seconds, grown }) => perSecond(total(grown), seconds)),
    errorsPerSecond: answers.map(({ seconds, grown }) => perSecond(countOf(grown, '5xx'), seconds)),
    rejectionsPerSecond: Object.fromEntries(
      reasons.map((reason) => [
        reason,
        rejections.map(({ seconds, grown }) => perSecond(countOf(grown, reason), seconds)),
      ]),
    ),
    p50Seconds: durations.map(({ p50Seconds }) => p50Seconds),
    p90Seconds: durations.map(({ p90Seconds }) => p90Seconds),
    p99Seconds: durations.map(({ p99Seconds }) => p99Seconds),
  }
}
