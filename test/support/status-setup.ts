/** The metrics of a sidecar without the sidecar, at a set time, and the status that they make. */
import type { Config } from '../../src/config/config.ts'
import type { AdminRoom } from '../../src/ops/admin-room.ts'
import type { AccountCounts } from '../../src/ops/busiest-accounts.ts'
import { type AuthDataSource, type MetricSources, Metrics } from '../../src/ops/metrics.ts'
import { Samples } from '../../src/ops/samples.ts'
import type { ReadyCondition } from '../../src/ops/status.ts'
import { statusDocument } from '../../src/ops/status-document.ts'

/** 2026-11-20T12:00:00Z. */
export const NOON = Date.UTC(2026, 10, 20, 12)

/** What a test sets. */
export type SetupOptions = Partial<Pick<Config, 'upstreams' | 'credentials' | 'enforcement'>> & {
  readonly checks?: ReadyCondition[]
  readonly authData?: Partial<AuthDataSource>
  readonly parts?: Partial<MetricSources>
  readonly name?: string
  readonly accounts?: AccountCounts
  readonly rooms?: readonly AdminRoom[]
}

/** Creates the metrics, and samples of them. */
export function statusSetup(options: SetupOptions = {}) {
  const clock = { ms: NOON }
  const now = () => clock.ms
  const { upstreams = [{ prefix: '/', url: 'http://127.0.0.1:9000' }], enforcement = 'enforce' } = options
  const tokenCache = { hits: 0, misses: 0, evictions: 0, size: 0 }
  const checks = options.checks ?? [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: true },
  ]
  const authData: AuthDataSource = {
    subjects: ['revocations', 'keys', 'credentials'],
    keys: { ring: () => ({}), tokenLifetimes: () => [] },
    revocations: { count: () => 2 },
    suspicions: { suspect: () => [], fingerprints: () => [] },
    activeCredentials: () => 3,
    certificateSets: new Map(),
    keySets: [],
    ...options.authData,
  }
  const metrics = new Metrics(now)
  for (const { prefix } of upstreams) {
    metrics.ofUpstream(prefix)
  }
  const pools = upstreams.map(({ prefix }) => ({ prefix, connections: 4, queued: 1 }))
  const read = metrics.readFrom({
    config: { enforcement },
    authData,
    tokenCache: { counts: tokenCache },
    listener: {
      inFlight: 3,
      connections: 7,
      connectionCounts: { dropped: 0, droppedByAddress: 0, evicted: 0 },
    },
    openFiles: { areUsedUp: false },
    forwarder: { pools: () => pools },
    isReady: () => true,
    processCounts: () => ({ log_lines_dropped_total: 0, uncaught_exceptions_total: 0 }),
    ...options.parts,
  })
  const samples = new Samples(read, now)
  const config = {
    name: options.name ?? 'storage-7',
    upstreams,
    credentials: options.credentials ?? { file: 'credentials.yaml' },
    cache: { maxTokens: 10_000, maxAgeSeconds: 300 },
  }
  return {
    clock,
    tokenCache,
    checks,
    metrics,
    read,
    samples,
    /** What `/status.json` shows. */
    async report() {
      const windows = await samples.windows()
      const accounts = options.accounts ?? { requests: [], bytes: [], refusals: [] }
      const rooms = options.rooms ?? []
      return statusDocument({ config, conditions: checks, windows, rooms, accounts })
    },
    /** Lets time pass, and takes a sample. */
    async step(seconds = 5) {
      clock.ms += seconds * 1000
      await samples.sample()
    },
  }
}

/**
 * Ten minutes of a sidecar that has much to do, with an upstream that fails now and then. The same each time.
 */
export async function tenBusyMinutes() {
  const setup = statusSetup({
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:9000' },
      { prefix: '/archive', url: 'https://archive.storage.example' },
      { prefix: '/thumbnails', url: 'unix:/run/thumbnails/api.sock' },
    ],
    checks: [
      { name: 'keys', ok: true },
      { name: 'credentials', ok: true, state: 'current' },
      { name: 'accepting', ok: true },
    ],
    credentials: { file: undefined, postgres: { urlFile: 'url', poolSize: 1 } },
    accounts: {
      requests: [
        { account: 'analytics', count: 18_204 },
        { account: 'backup-of-a-customer-with-a-very-long-account-name', count: 9_120 },
        { account: 'web', count: 1_833 },
      ],
      bytes: [
        { account: 'backup-of-a-customer-with-a-very-long-account-name', count: 88_204_118_200 },
        { account: 'analytics', count: 1_820_400 },
      ],
      refusals: [{ account: 'web', count: 568 }],
    },
    authData: {
      keys: {
        ring: () => ({ signing: { kid: 'rotation-2026-11', createdAtSeconds: NOON / 1000 - 12 * 86_400 } }),
        tokenLifetimes: () => [
          { kid: 'rotation-2026-11', seconds: 86_400 },
          { kid: 'rotation-2026-08', seconds: 0 },
        ],
      },
      certificateSets: new Map([
        ['listener', { current: () => ({ endsAtSeconds: NOON / 1000 + 9 * 86_400 }) }],
      ]),
      keySets: [
        {
          issuer: 'idp',
          fetches: { ok: 0, failed: 0 },
          state: () => ({ loaded: false, ageSeconds: undefined, lastFetch: undefined }),
        },
      ],
    },
    parts: {
      forwarder: {
        pools: () => [
          { prefix: '/', connections: 24, queued: 0 },
          { prefix: '/archive', connections: 3, queued: 0 },
          { prefix: '/thumbnails', connections: 0, queued: 0 },
        ],
      },
    },
  })
  const { metrics, samples, tokenCache } = setup
  const times = (count: number, act: (at: number) => void) => {
    for (let at = 0; at < count; at++) {
      act(at)
    }
  }
  await samples.sample()
  for (let step = 0; step < 120; step++) {
    addForwarded(step)
    addLogins(step)
    addRefusals(step)
    await setup.step()
    if (step === 40) {
      metrics.onReload('keys', 'ok')
    }
    if (step === 100) {
      metrics.onReload('revocations', 'failed')
    }
  }

  function addForwarded(step: number): void {
    const isSlow = step > 70 && step < 82
    const isDown = step > 72 && step < 80
    times(240 * (1 + 0.35 * Math.sin(step / 17)), (at) => {
      metrics.onRequest('proxy', 'GET', 200, 0.0001 * (at % 97) * (isSlow ? 6 : 1))
      metrics.ofUpstream('/').onOutcome(step + at === 200 ? 'client_aborted' : 'ok')
      metrics.ofUpstream('/').onResponse(200, 0.00005 * (at % 97))
      metrics.onTokenCheck('ok')
      tokenCache.hits++
    })
    times(12, () => {
      metrics.onRequest('proxy', 'PUT', isDown ? 503 : 200, 0.03)
      metrics.ofUpstream('/archive').onOutcome(isDown ? 'connection_refused' : 'ok')
      if (!isDown) {
        metrics.ofUpstream('/archive').onResponse(200, 0.02)
      }
      metrics.onTokenCheck('ok')
    })
  }

  function addLogins(step: number): void {
    times(3, () => {
      metrics.onRequest('token_issue', 'POST', 200, 0.0009)
      metrics.onEvent({ event: 'login', method: 'token', usedPreviousSecret: false })
      tokenCache.misses++
      tokenCache.size++
    })
    if (step > 95) {
      metrics.onEvent({ event: 'login_failed', method: 'token', reason: 'rejected' })
    }
  }

  function addRefusals(step: number): void {
    const refuse = (count: number, reason: 'expired' | 'missing' | 'unknown_key') =>
      times(count, () => {
        metrics.onRequest('proxy', 'GET', 400, 0.0005)
        metrics.onTokenCheck(reason)
      })
    refuse(step > 30 && step < 44 ? 16 : 3, 'expired')
    refuse(1, 'missing')
    refuse(step > 95 ? 7 : 0, 'unknown_key')
  }
  return setup
}
