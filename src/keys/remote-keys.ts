/**
 * Keeps the keys of another issuer current: fetches its JWK Set every minute and, for an unknown kid, at once, but at
 * most every five seconds. The last good set stays while the issuer is down or its set is bad.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { Logger } from '../ops/log.ts'
import type { Loaded, ReloadResult } from '../reload/loaded.ts'
import { createJwkSetLoader } from './jwk-set.ts'
import { type KeyRing, publicJwks } from './key-ring.ts'

export interface RemoteKeysOptions {
  readonly url: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after a different set has become the current one. */
  readonly onChange?: (ring: KeyRing) => void
  readonly onFetch?: (result: ReloadResult) => void
}

export interface RemoteKeysState {
  /** Whether a good set has arrived. */
  readonly loaded: boolean
  /** Seconds since the last good set arrived; absent before the first. */
  readonly ageSeconds?: number
  /** Absent before the end of the first fetch. */
  readonly lastFetch?: ReloadResult
}

/** The keys of an issuer. Nothing here rejects. */
export interface RemoteKeys {
  /** The current keys; none before the first good set. */
  ring(): KeyRing
  /** Fetches the set for a kid that is not in the ring, if that is due. Resolves within two seconds with whether the ring has it. */
  refresh(kid: string): Promise<boolean>
  /** Fetches the set now, due or not. */
  refetch(): Promise<void>
  /** Resolves with true once there is a good set, with false if it is stopped before. */
  firstSet(): Promise<boolean>
  state(): RemoteKeysState
  /** Ends all fetches. */
  stop(): void
}

const REFRESH_MS = 60_000

/** Between two fetches for unknown kids, and after a failed fetch. */
const COOLDOWN_MS = 5000

/** After a failed fetch before the first good set: nothing listens yet, so no request can ask for more fetches. */
const START_RETRY_MS = 1000

/** How long a request waits for a fetch in flight, which continues when the issuer takes longer. */
const WAIT_MS = 1000

/** Begins to fetch. The timer keeps the process alive until `stop`. */
export function createRemoteKeys({ url, log, now, onChange, onFetch }: RemoteKeysOptions): RemoteKeys {
  const { origin, pathname } = new URL(url)
  const from = `${origin}${pathname}` // the query may be a secret
  const stopping = new AbortController()
  const load = createJwkSetLoader(url, { now, signal: stopping.signal })
  let ring: KeyRing = { verification: new Map() }
  let goodAt: number | undefined
  let lastFetch: ReloadResult | undefined
  let cooldownFrom = Number.NEGATIVE_INFINITY
  let reported = ''
  let fetching: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined
  let settleFirst: (loaded: boolean) => void = () => {}
  const first = new Promise<boolean>((resolve) => {
    settleFirst = resolve
  })
  void fetchNow()

  return {
    ring: () => ring,
    firstSet: () => first,
    state: () => ({
      loaded: goodAt !== undefined,
      ...(goodAt !== undefined && { ageSeconds: Math.max(0, (now() - goodAt) / 1000) }),
      ...(lastFetch !== undefined && { lastFetch }),
    }),
    async refresh(kid) {
      // A fetch in flight may have begun before the key was published.
      await fetchInFlight()
      // The clock may be set back.
      const isDue = Math.abs(now() - cooldownFrom) >= COOLDOWN_MS
      if (!ring.verification.has(kid) && fetching === undefined && isDue) {
        cooldownFrom = now()
        void fetchNow()
      }
      if (!ring.verification.has(kid)) await fetchInFlight()
      return ring.verification.has(kid)
    },
    async refetch() {
      await fetching
      await fetchNow()
    },
    stop() {
      stopping.abort()
      clearTimeout(timer)
      settleFirst(false)
    },
  }

  async function fetchInFlight(): Promise<void> {
    if (fetching !== undefined) await Promise.race([fetching, sleep(WAIT_MS, undefined, { ref: false })])
  }

  async function fetchNow(): Promise<void> {
    if (stopping.signal.aborted) return
    clearTimeout(timer)
    fetching ??= load()
      .then(apply)
      .catch((err: unknown) => log.error({ from, err }, 'a JWK Set could not be applied'))
      .finally(() => {
        fetching = undefined
        const retryMs = goodAt === undefined ? START_RETRY_MS : COOLDOWN_MS
        if (!stopping.signal.aborted) timer = setTimeout(fetchNow, lastFetch === 'ok' ? REFRESH_MS : retryMs)
      })
    await fetching
  }

  function apply(loaded: Loaded<KeyRing>): void {
    if (stopping.signal.aborted) return
    const isRecovered = lastFetch === 'failed' && goodAt !== undefined
    lastFetch = loaded.ok ? 'ok' : 'failed'
    const lines = loaded.ok ? loaded.warnings : loaded.problems
    const isNew = lines.join('\n') !== reported
    reported = lines.join('\n')
    if (loaded.ok) {
      if (isRecovered) log.info({ from }, 'the JWK Set can be used again')
      if (isNew) for (const warning of lines) log.warn({ from }, `JWK Set: ${warning}`)
      goodAt = now()
      settleFirst(true)
      adopt(loaded.value)
    } else {
      const outcome = goodAt === undefined ? 'there is none yet' : 'the last good one stays active'
      if (isNew) log.error({ from, problems: lines }, `the JWK Set cannot be used, ${outcome}`)
      cooldownFrom = now()
    }
    onFetch?.(lastFetch)
  }

  /** An equal set keeps the ring, and with it the cache of verified tokens. */
  function adopt(next: KeyRing): void {
    if (isDeepStrictEqual(jwksByKid(ring), jwksByKid(next))) return
    ring = next
    log.info({ from, kids: [...ring.verification.keys()] }, 'a new JWK Set is active')
    onChange?.(ring)
  }
}

const jwksByKid = (ring: KeyRing) => new Map(publicJwks(ring).keys.map((jwk) => [jwk.kid, jwk]))
