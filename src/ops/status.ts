/**
 * The state of the sidecar, as the status page and `/status.json` show it.
 * In: metrics, readiness, some settings. Out: current rates, counts of ten minutes. Nothing in it is secret.
 */
import type { Config } from '../config/config.ts'
import type { CertificateMaterial } from '../reload/certificates.ts'
import type { IssueFailure } from '../server/reasons.ts'
import { VERSION } from '../version.ts'
import { fullName, type MetricName } from './metrics.ts'
import { Columns, type Growth, type Labels, type MetricFamily, rounded, type Sample, sum } from './samples.ts'

const SAMPLE_EVERY_MS = 5000
/** Ten minutes of steps between samples. */
const MAX_SAMPLES = 121
/** Current rates are those of 30 seconds. */
const RECENT_STEPS = 6
/** Without a request for so long nothing is known of an upstream that failed. */
const FAULT_SECONDS = 60

/** One condition of readiness. */
export interface ReadyCheck {
  readonly name: string
  readonly ok: boolean
  /** One or two words. */
  readonly state?: string
}

/** The data of the admin listener: of this process, or collected from workers. */
export interface AdminSources {
  readonly ready: () => readonly ReadyCheck[] | Promise<readonly ReadyCheck[]>
  /** A JWK Set (RFC 7517); undefined before a worker has responded. */
  readonly jwks: () => unknown
  readonly exposition: { readonly contentType: string; metrics(): Promise<string> }
  readonly statusMetrics: () => Promise<readonly MetricFamily[]>
}

export interface AdminOptions {
  /** Of `admin.tls`; undefined: plain HTTP. */
  readonly certificates?: CertificateMaterial | undefined
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called with faults of the listening socket, and of samples and pages that could not be created. */
  readonly onError: (error: unknown) => void
}

export type Status = Awaited<ReturnType<ReturnType<typeof createStatusReporter>['report']>>

export function createStatusReporter(
  { upstreams, credentials, cache }: Pick<Config, 'upstreams' | 'credentials' | 'cache'>,
  { ready, statusMetrics }: Pick<AdminSources, 'ready' | 'statusMetrics'>,
  { now, onError }: AdminOptions,
) {
  const startedAt = now()
  const columns = new Columns()
  const samples: Sample[] = []
  /** By the prefix of the upstream, in epoch milliseconds. */
  const lastOks = new Map<string, number>()
  const lastFaults = new Map<string, { outcome: string; at: number }>()
  let lastRead: Sample | undefined
  let timer: NodeJS.Timeout | undefined

  /** Reads the metrics, and records which upstreams responded and which failed since the last call, at most 5 s ago. */
  const read = async () => {
    const families = await statusMetrics()
    const to = columns.read(families, now())
    const since = columns.growth(lastRead ?? to, to)
    lastRead = to
    for (const { prefix } of upstreams) {
      const outcomes = outcomesOf(since, prefix)
      if ((outcomes.get('ok') ?? 0) > 0) lastOks.set(prefix, to.at)
      const [outcome] = faultsIn(outcomes).keys()
      if (outcome !== undefined) lastFaults.set(prefix, { outcome, at: to.at })
    }
    return { families, to }
  }

  const sample = async (): Promise<void> => {
    try {
      samples.push((await read()).to)
      if (samples.length > MAX_SAMPLES) samples.shift()
    } catch (error) {
      onError(error)
    }
  }

  const report = async () => {
    const { families, to } = await read()
    const checks = await ready()
    const tenMinutes = columns.growth(samples[0] ?? to, to)
    const recently = columns.growth(samples.at(-RECENT_STEPS - 1) ?? samples[0] ?? to, to)
    const steps = samples.slice(1).map((sample, at) => columns.growth(samples[at] ?? sample, sample))
    /** Since zero: the values themselves. */
    const values = columns.growth({ at: 0, row: [] }, to)
    const value = (name: MetricName, where?: Labels) => values.total(fullName(name), where)

    const statuses = tenMinutes.by(REQUESTS, 'status')
    const refused = refusedIn(tenMinutes)
    const refusedNow = refusedIn(recently)
    const hits = tenMinutes.total(fullName('token_cache_hits_total'))
    const misses = tenMinutes.total(fullName('token_cache_misses_total'))
    const failures = tenMinutes.by(fullName('token_issue_failures_total'), 'reason')
    const signer = seriesOf(families, fullName('signing_key_age_seconds'))[0]
    const keySetAges = seriesOf(families, fullName('jwks_age_seconds'))
    const latencies = steps.map((step) => step.percentiles(DURATIONS))
    return {
      time: new Date(to.at).toISOString(),
      version: VERSION,
      node: process.version,
      startedAt: new Date(startedAt).toISOString(),
      uptimeSeconds: Math.floor((to.at - startedAt) / 1000),
      ready: checks.every(({ ok }) => ok),
      draining: checks.some(({ state }) => state === 'draining'),
      enforcing: seriesOf(families, fullName('enforcing')).every(({ value }) => value !== 0),
      checks,
      window: { seconds: rounded(tenMinutes.seconds), nowSeconds: rounded(recently.seconds) },
      requests: {
        perSecond: recently.perSecond(recently.total(REQUESTS)),
        count: sum(statuses),
        byStatus: byClass(statuses),
        failing: failingIn(tenMinutes),
        failingRatio: share(failingIn(recently), recently.total(REQUESTS, { route: 'proxy' })),
        inFlight: value('requests_in_flight'),
        connections: value('client_connections'),
        connectionsDropped: recently.total(fullName('client_connections_dropped_total')),
      },
      rejections: {
        perSecond: recently.perSecond(sum(refusedNow)),
        count: sum(refused),
        byReason: [...refused].map(([reason, count]) => ({
          reason,
          count,
          perSecond: recently.perSecond(refusedNow.get(reason) ?? 0),
        })),
      },
      latency: ['all', ...tenMinutes.by(DURATIONS, 'route').keys()]
        .map((route) => {
          const where = route === 'all' ? {} : { route }
          const count = tenMinutes.total(DURATIONS, { ...where, le: '+Inf' })
          return { route, count, ...tenMinutes.percentiles(DURATIONS, where) }
        })
        .filter(({ route, count }) => count > 0 || route === 'all'),
      latencyNow: recently.percentiles(DURATIONS),
      cache: {
        hitRatio: share(hits, hits + misses),
        entries: value('token_cache_entries'),
        capacity: cache.maxTokens,
      },
      logins: {
        issued: tenMinutes.total(fullName('tokens_issued_total')),
        failed: sum(failures),
        byReason: Object.fromEntries(failures),
        issuedNow: recently.total(fullName('tokens_issued_total')),
        byReasonNow: Object.fromEntries(
          recently.by(fullName('token_issue_failures_total'), 'reason'),
        ) as Partial<Record<IssueFailure, number>>,
      },
      keys: seriesOf(families, fullName('key_token_lifetime_seconds')).map(({ labels, value }) => {
        const signs = labels['kid'] === signer?.labels['kid']
        const ageSeconds = signs ? (signer?.value ?? null) : null
        return { kid: String(labels['kid']), signs, ageSeconds, tokensLiveSeconds: value }
      }),
      keySets: [...values.by(fullName('jwks_fetches_total'), 'issuer').keys()].map((issuer) => {
        const age = keySetAges.find(({ labels }) => labels['issuer'] === issuer)
        return { issuer, ageSeconds: age?.value ?? null }
      }),
      certificates: seriesOf(families, fullName('certificate_not_after_timestamp_seconds')).map(
        ({ labels, value: seconds }) => ({
          certificate: String(labels['certificate']),
          expiresAt: new Date(seconds * 1000).toISOString(),
          secondsLeft: Math.floor(seconds - to.at / 1000),
        }),
      ),
      upstreams: upstreams.map(({ prefix, url }) => {
        const where = { upstream: prefix }
        const outcomes = outcomesOf(tenMinutes, prefix)
        const count = sum(outcomes)
        const failed = sum(faultsIn(outcomes))
        const failedNow = sum(faultsIn(outcomesOf(recently, prefix)))
        const lastFault = lastFaults.get(prefix)
        const faultSeconds = lastFault === undefined ? null : Math.floor((to.at - lastFault.at) / 1000)
        const isDown =
          lastFault !== undefined &&
          (faultSeconds ?? 0) <= FAULT_SECONDS &&
          lastFault.at > (lastOks.get(prefix) ?? 0)
        const responses = recently.by(fullName('upstream_responses_total'), 'class', where)
        const serverErrors = responses.get('5xx') ?? 0
        return {
          prefix,
          address: addressOf(url),
          state: isDown ? 'failing' : failedNow + serverErrors > 0 ? 'degraded' : count > 0 ? 'ok' : 'idle',
          count,
          failed,
          failedNow,
          failedRatio: share(failed, count),
          /** Of the upstream's own responses. */
          serverErrors: tenMinutes.total(fullName('upstream_responses_total'), { ...where, class: '5xx' }),
          serverErrorRatio: share(serverErrors, sum(responses)),
          queueFull: outcomesOf(recently, prefix).get('connection_limit_reached') ?? 0,
          outcomes: Object.fromEntries([...outcomes].filter(([, occurred]) => occurred > 0)),
          lastFault: lastFault
            ? {
                outcome: lastFault.outcome,
                seenAt: new Date(lastFault.at).toISOString(),
                secondsAgo: faultSeconds ?? 0,
              }
            : null,
          firstByte: tenMinutes.percentiles(fullName('upstream_response_seconds'), where),
          connections: value('upstream_connections', where),
          queued: value('upstream_queue', where),
        }
      }),
      credentials: credentialsState(credentials, checks),
      revocations: value('revocations'),
      reloads: seriesOf(families, fullName('reload_failing')).map(({ labels, value: isFailing }) => {
        const { subject } = labels
        const lastGood = value('reload_last_good_timestamp_seconds', { subject })
        return {
          subject: String(subject),
          ok: value('reloads_total', { subject, result: 'ok' }),
          failed: value('reloads_total', { subject, result: 'failed' }),
          failing: isFailing > 0,
          lastGoodAt: new Date(lastGood * 1000).toISOString(),
        }
      }),
      process: {
        cpuRatio: recently.perSecond(recently.total('process_cpu_seconds_total')),
        rssBytes: values.total('process_resident_memory_bytes'),
        logLinesDropped: tenMinutes.total(fullName('log_lines_dropped_total')),
      },
      series: {
        times: samples.slice(1).map(({ at }) => Math.round(at / 1000)),
        requestsPerSecond: steps.map((step) => step.perSecond(step.total(REQUESTS))),
        failingPerSecond: steps.map((step) => step.perSecond(failingIn(step))),
        rejectionsPerSecond: Object.fromEntries(
          [...refused.keys()].map((reason) => [
            reason,
            steps.map((step) => step.perSecond(refusedIn(step).get(reason) ?? 0)),
          ]),
        ),
        p50Seconds: latencies.map(({ p50Seconds }) => p50Seconds),
        p99Seconds: latencies.map(({ p99Seconds }) => p99Seconds),
      },
    }
  }

  return {
    start(): void {
      void sample()
      timer = setInterval(sample, SAMPLE_EVERY_MS).unref()
    },
    stop: () => clearInterval(timer),
    sample,
    /** Rejects when the metrics cannot be read. */
    report,
  }
}

const REQUESTS = fullName('requests_total')
const DURATIONS = fullName('request_duration_seconds')
const CHECKS = fullName('token_checks_total')

/** 5xx of forwarded requests: "failing" on the dashboard and in the alerts too. */
function failingIn(growth: Growth): number {
  const byStatus = [...growth.by(REQUESTS, 'status', { route: 'proxy' })]
  return sum(new Map(byStatus.filter(([status]) => status.startsWith('5'))))
}

function refusedIn(growth: Growth): Map<string, number> {
  return growth.by(CHECKS, 'reason', { result: 'rejected' })
}

function outcomesOf(growth: Growth, upstream: string): Map<string, number> {
  return growth.by(fullName('upstream_requests_total'), 'outcome', { upstream })
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

function credentialsState({ file, postgres }: Config['credentials'], checks: readonly ReadyCheck[]) {
  if (!file && !postgres) return { kind: 'none', state: 'this sidecar only verifies' }
  const check = checks.find(({ name }) => name === 'credentials')
  const state = check?.state ?? (check?.ok ? 'loaded' : 'not loaded')
  return { kind: file ? 'file' : 'PostgreSQL', state }
}

function seriesOf(families: readonly MetricFamily[], name: string): MetricFamily['values'] {
  return families.find((family) => family.name === name)?.values ?? []
}

/** Scheme, host and port of an upstream, or the path of its socket: a URL may hold more. */
export function addressOf(url: string): string {
  if (url.startsWith('unix:')) return url
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}

/** From 0 to 1; null of nothing. */
function share(part: number, total: number): number | null {
  return total > 0 ? rounded(part / total) : null
}
