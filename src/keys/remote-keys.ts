/**
 * Keeps the key set of one issuer current: fetches its JWK Set every minute, and for an unknown kid. The last good set
 * stays while the issuer is down or sends anything else. A token waits for its own issuer only.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../log.ts'
import { MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from '../reload/reloadable.ts'
import { loaded, notLoaded } from '../values/problem.ts'
import type { FindKey, FoundKey, KeyRing } from './key-ring.ts'
import type { KeySet, KeySetSource, UncheckedJwk } from './key-set.ts'
import { fetchJwks, findInSet, importKeys } from './key-set.ts'

export interface RemoteKeysOptions extends KeySetSource {
  readonly issuer: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly now: () => number
  /** A different set has become the current one. */
  readonly onChange: () => void
  readonly onFetch: (issuer: string, result: ReloadResult) => void
}

const REFRESH_MS = 60_000

/** Between two fetches for unknown kids, after a failed fetch, and while there is no set. */
const COOLDOWN_MS = 5000

/** How long a request waits for a fetch, which continues when the issuer takes longer. */
const WAIT_MS = 1000

/** Fetches from `start` to `stop`. Nothing here rejects. */
export function createRemoteKeys(options: RemoteKeysOptions) {
  const { issuer, jwksUrl, algorithms, log, now, onChange, onFetch } = options
  const { origin, pathname } = new URL(jwksUrl)
  const where = { issuer, from: `${origin}${pathname}` } // the query may be a secret
  const stopping = new AbortController()
  let jwks: readonly UncheckedJwk[] = []
  let lastFetch: ReloadResult | undefined
  let goodAtMs = 0
  let cooldownFromMs = Number.NEGATIVE_INFINITY
  let settleLoaded: (isLoaded: boolean) => void = () => {}
  const firstSet = new Promise<boolean>((resolve) => {
    settleLoaded = resolve
  })
  const reloadable: Reloadable<KeySet | undefined> = new Reloadable<KeySet | undefined>({
    async observe() {
      const fetched = await fetchJwks(options, stopping.signal)
      if (!fetched.ok) return fetched
      jwks = fetched.value
      // The same keys in another order are the same set: it keeps the cache of verified tokens.
      const sorted = jwks.map((jwk) => JSON.stringify(jwk)).sort()
      return loaded(sorted.join())
    },
    async load() {
      const { keys, warnings } = await importKeys(jwks, algorithms, Math.floor(now() / 1000))
      // The keys of a set that empties are withdrawn. A first set without keys is a mistake.
      const isUsable = keys.length > 0 || reloadable.current() !== undefined
      return isUsable ? loaded(keys, warnings) : notLoaded(warnings)
    },
    initial: undefined,
    pollMs: REFRESH_MS,
    retryMs: COOLDOWN_MS,
    onActive(fresh, warnings) {
      const kids = fresh?.slice(0, MAX_LOGGED_PROBLEMS).map(({ kid }) => kid)
      log.info({ ...where, keys: fresh?.length, kids }, 'a new JWK Set is active')
      const problems = warnings.slice(0, MAX_LOGGED_PROBLEMS)
      if (problems.length > 0) log.warn({ ...where, problems }, 'a part of the JWK Set cannot be used')
      onChange()
    },
    onFailed(all) {
      const outcome =
        reloadable.current() === undefined ? 'there is none yet' : 'the last good one stays active'
      const problems = all.slice(0, MAX_LOGGED_PROBLEMS)
      log.error({ ...where, problems }, `the JWK Set cannot be used, ${outcome}`)
    },
    onPolled(isCurrent) {
      if (isCurrent && lastFetch === 'failed') log.info(where, 'the JWK Set can be used again')
      lastFetch = isCurrent ? 'ok' : 'failed'
      if (isCurrent) goodAtMs = now()
      else cooldownFromMs = now()
      onFetch(issuer, lastFetch)
      if (isCurrent) settleLoaded(true)
    },
    onFault: (err) => log.error({ ...where, err }, 'a JWK Set could not be applied'),
  })
  let fetching = Promise.resolve(true)

  function findNow(kid: string | undefined, alg: string): FoundKey {
    const keys = reloadable.current()
    return keys === undefined ? { ok: false, reason: 'unavailable' } : findInSet(keys, algorithms, kid, alg)
  }

  /** Fetches for an unknown kid, if due: a fetch in progress may have begun before the key was published. */
  async function findNewer(kid: string | undefined, alg: string) {
    // The clock may be set back.
    const isDue = Math.abs(now() - cooldownFromMs) >= COOLDOWN_MS
    if (isDue && reloadable.current() !== undefined) {
      cooldownFromMs = now()
      fetching = reloadable.refresh()
    }
    const waiting = new AbortController()
    const timeout = sleep(WAIT_MS, undefined, { ref: false, signal: waiting.signal }).catch(() => {})
    await Promise.race([fetching, timeout])
    waiting.abort() // a timer for each token would stay
    return findNow(kid, alg)
  }

  return {
    issuer,
    findKey: ((kid, alg) => {
      const found = findNow(kid, alg)
      if (found.ok || found.reason === 'algorithm') return found
      return found.reason === 'unavailable' || kid !== undefined ? findNewer(kid, alg) : found
    }) satisfies FindKey,
    /** Resolves with true once there is a good set, with false if it is stopped before. */
    whenLoaded: () => firstSet,
    /** Resolves when the newest fetch has ended, well or not. */
    whenFetched: () => fetching,
    /** For a sidecar without keys of its own: those of the set that have a kid. */
    ring: (): KeyRing => ({
      keys: new Map(reloadable.current()?.flatMap((key) => (key.kid === '' ? [] : [[key.kid, key]]))),
    }),
    state() {
      const isLoaded = reloadable.current() !== undefined
      return {
        loaded: isLoaded,
        ageSeconds: isLoaded ? Math.max(0, (now() - goodAtMs) / 1000) : undefined,
        lastFetch,
      }
    },
    start(): void {
      reloadable.start()
      fetching = reloadable.refresh()
    },
    reload: () => reloadable.reload(),
    stop(): void {
      stopping.abort()
      reloadable.stop()
      settleLoaded(false)
    },
  }
}
