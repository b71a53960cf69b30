/**
 * The state of the sidecar, as the status page and `/status.json` show it.
 * In: metrics, readiness, some settings. Out: current rates, counts of ten minutes. Nothing in it is secret.
 */
import type { Config } from '../config/config.ts'
import type { CertificateMaterial } from '../reload/certificates.ts'
import type { IssueFailure } from '../server/context.ts'
import { VERSION } from '../version.ts'
import { Columns, type Growth, type MetricFamily, rounded, type Sample, sum } from './samples.ts'

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
  let timer: NodeJS.Timeout | undefined

  const read = async () => columns.read(await statusMetrics(), now())

  const sample = async (): Promise<void> => {
    try {
      samples.push(await read())
      if (samples.length > MAX_SAMPLES) samples.shift()
    } catch (error) {
      onError(error)
    }
  }

  const report = async () => {
    const to = await read()
    const checks = await ready()
    const all = [...samples, to]
    const tenMinutes = columns.growth(all[0] ?? to, to)
    const recently = columns.growth(all.at(-RECENT_STEPS - 2) ?? all[0] ?? to, to)
    const steps = all.slice(1).map((sample, at) => columns.growth(all[at] ?? sample, sample))
    /** Without the last step, which may be too short for a rate. */
    const drawn = steps.slice(0, -1)
    /** Since zero: the values themselves. */
    const values = columns.growth({ at: 0, row: [] }, to)

    const statuses = tenMinutes.by('requests_total', 'status')
    const refused = refusedIn(tenMinutes)
    const refusedNow = refusedIn(recently)
    const asked = FORWARDING.reduce((count, route) => count + recently.total('requests_total', { route }), 0)
    const hits = tenMinutes.total('token_cache_hits_total')
    const misses = tenMinutes.total('token_cache_misses_total')
    const failures = tenMinutes.by('token_issue_failures_total', 'reason')
    const failuresNow: Partial<Record<IssueFailure, number>> = Object.fromEntries(
      recently.by('token_issue_failures_total', 'reason'),
    )
    const signers = values.by('signing_key_age_seconds', 'kid')
    const keySetAges = values.by('jwks_age_seconds', 'issuer')
    const latencies = drawn.map((step) => step.percentiles('request_duration_seconds'))
    return {
      time: new Date(to.at).toISOString(),
      version: VERSION,
      node: process.version,
      startedAt: new Date(startedAt).toISOString(),
      uptimeSeconds: Math.floor((to.at - startedAt) / 1000),
      ready: checks.every(({ ok }) => ok),
      draining: checks.some(({ state }) => state === 'draining'),
      enforcing: values.by('enforcing', '').get('') !== 0,
      checks,
      window: { seconds: rounded(tenMinutes.seconds), nowSeconds: rounded(recently.seconds) },
      requests: {
        perSecond: recently.perSecond(recently.total('requests_total')),
        count: sum(statuses),
        byStatus: byClass(statuses),
        failing: failingIn(tenMinutes),
        // Of those that were forwarded: refused ones would hide that all others fail.
        failingRatio: share(failingIn(recently), Math.max(failingIn(recently), asked - sum(refusedNow))),
        inFlight: values.total('requests_in_flight'),
        connections: values.total('client_connections'),
        connectionsDropped: recently.total('client_connections_dropped_total'),
      },
      rejections: {
        perSecond: recently.perSecond(sum(refusedNow)),
        count: sum(refused),
        acceptedNow: recently.total('token_checks_total', { reason: 'ok' }),
        byReason: [...refused].map(([reason, count]) => ({
          reason,
          count,
          countNow: refusedNow.get(reason) ?? 0,
          perSecond: recently.perSecond(refusedNow.get(reason) ?? 0),
        })),
      },
      latency: ['all', ...tenMinutes.by('request_duration_seconds', 'route').keys()]
        .map((route) => {
          const where = route === 'all' ? {} : { route }
          const count = tenMinutes.total('request_duration_seconds', { ...where, le: '+Inf' })
          return { route, count, ...tenMinutes.percentiles('request_duration_seconds', where) }
        })
        .filter(({ route, count }) => count > 0 || route === 'all'),
      latencyNow: recently.percentiles('request_duration_seconds'),
      cache: {
        hitRatio: share(hits, hits + misses),
        entries: values.total('token_cache_entries'),
        capacity: cache.maxTokens,
      },
      logins: {
        issued: tenMinutes.total('tokens_issued_total'),
        linksIssued: tenMinutes.total('links_issued_total'),
        failed: sum(failures),
        byReason: Object.fromEntries(failures),
        issuedNow: recently.total('tokens_issued_total'),
        byReasonNow: failuresNow,
      },
      keys: [...values.by('key_token_lifetime_seconds', 'kid')].map(([kid, tokensLiveSeconds]) => ({
        kid,
        signs: signers.has(kid),
        ageSeconds: signers.get(kid) ?? null,
        tokensLiveSeconds,
      })),
      keySets: [...values.by('jwks_fetches_total', 'issuer').keys()].map((issuer) => ({
        issuer,
        ageSeconds: keySetAges.get(issuer) ?? null,
      })),
      certificates: [...values.by('certificate_not_after_timestamp_seconds', 'certificate')].map(
        ([certificate, seconds]) => ({
          certificate,
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
        const okAt = steps.findLast((step) => outcomesOf(step, prefix).get('ok'))?.at ?? 0
        const faults = steps.map((step) => ({ at: step.at, outcomes: faultsIn(outcomesOf(step, prefix)) }))
        const lastFault = faults.findLast(({ outcomes }) => outcomes.size > 0)
        const isDown = lastFault && lastFault.at > Math.max(okAt, to.at - FAULT_SECONDS * 1000)
        const responses = recently.by('upstream_responses_total', 'class', where)
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
          serverErrors: tenMinutes.total('upstream_responses_total', { ...where, class: '5xx' }),
          serverErrorRatio: share(serverErrors, sum(responses)),
          queueFull: outcomesOf(recently, prefix).get('connection_limit_reached') ?? 0,
          outcomes: Object.fromEntries([...outcomes].filter(([, occurred]) => occurred > 0)),
          lastFault: lastFault
            ? {
                outcome: [...lastFault.outcomes.keys()][0] ?? '',
                seenAt: new Date(lastFault.at).toISOString(),
                secondsAgo: Math.floor((to.at - lastFault.at) / 1000),
              }
            : null,
          firstByte: tenMinutes.percentiles('upstream_response_seconds', where),
          connections: values.total('upstream_connections', where),
          queued: values.total('upstream_queue', where),
        }
      }),
      credentials: credentialsState(credentials, checks),
      revocations: values.total('revocations'),
      reloads: [...values.by('reload_failing', 'subject')].map(([subject, failing]) => ({
        subject,
        ok: values.total('reloads_total', { subject, result: 'ok' }),
        failed: values.total('reloads_total', { subject, result: 'failed' }),
        failing: failing > 0,
        lastGoodAt: new Date(
          values.total('reload_last_good_timestamp_seconds', { subject }) * 1000,
        ).toISOString(),
      })),
      process: {
        cpuRatio: recently.perSecond(recently.total('process_cpu_seconds_total')),
        rssBytes: values.total('process_resident_memory_bytes'),
        logLinesDropped: tenMinutes.total('log_lines_dropped_total'),
      },
      series: {
        times: drawn.map(({ at }) => Math.round(at / 1000)),
        requestsPerSecond: drawn.map((step) => step.perSecond(step.total('requests_total'))),
        failingPerSecond: drawn.map((step) => step.perSecond(failingIn(step))),
        rejectionsPerSecond: Object.fromEntries(
          [...refused.keys()].map((reason) => [
            reason,
            drawn.map((step) => step.perSecond(refusedIn(step).get(reason) ?? 0)),
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

const FORWARDING = ['proxy', 'link']

/** 5xx of forwarded requests: "failing" on the dashboard and in the alerts too. */
function failingIn(growth: Growth): number {
  const failing = (route: string) => byClass(growth.by('requests_total', 'status', { route }))['5xx'] ?? 0
  return FORWARDING.reduce((count, route) => count + failing(route), 0)
}

function refusedIn(growth: Growth): Map<string, number> {
  return growth.by('token_checks_total', 'reason', { result: 'rejected' })
}

function outcomesOf(growth: Growth, upstream: string): Map<string, number> {
  return growth.by('upstream_requests_total', 'outcome', { upstream })
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
