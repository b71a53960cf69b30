/**
 * Keeps the key set of one issuer current: fetches its JWK Set every minute, and for an unknown kid.
 * The last good set stays active until the next good one. A token waits for its own issuer only.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Logger, loggedItems } from '../log.ts'
import { Reloadable, type ReloadResult } from '../reload/reloadable.ts'
import { failed, loaded, notLoaded } from '../values/result.ts'
import { fetchJwks, importKeys, type KeySetSource, type UncheckedJwk } from './jwk-set.ts'
import { type FindKey, type FoundKey, findInSet, type Key, type KeyRing } from './key-ring.ts'

export interface RemoteKeysOptions extends KeySetSource {
  readonly issuer: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly now: () => number
}

const REFRESH_MS = 60_000

/** The pause between fetches for unknown kids, after a failed fetch, and while there is no set. */
const COOLDOWN_MS = 5000

/** How long a request waits for a fetch. The fetch continues if the issuer takes longer. */
const WAIT_MS = 1000

export interface KeySetState {
  readonly loaded: boolean
  /** The time since the issuer last sent the active set. */
  readonly ageSeconds: number | undefined
  readonly lastFetch: ReloadResult | undefined
}

class FetchRecord {
  readonly counts = { ok: 0, failed: 0 }
  last: ReloadResult | undefined
  goodAtMs = 0
  failedAtMs = Number.NEGATIVE_INFINITY
}

type FetchedSet = { readonly version: string; readonly jwks: readonly UncheckedJwk[] }

function openKeySet(options: RemoteKeysOptions, signal: AbortSignal) {
  const { issuer, jwksUrl, algorithms, log, now } = options
  const { origin, pathname } = new URL(jwksUrl)
  const record = new FetchRecord()
  const logFields = { issuer, from: `${origin}${pathname}` } // the query may be a secret
  const keySet = new Reloadable<readonly Key[] | undefined, FetchedSet>({
    /** The same keys in another order are the same version, which does not empty the token cache. */
    async observe() {
      const read = await fetchJwks(options, signal)
      if (!read.ok) return read
      const sorted = read.value.map((jwk) => JSON.stringify(jwk)).sort()
      return loaded({ version: sorted.join(), jwks: read.value })
    },
    /** An empty set withdraws the keys of the former one. As the first set, it is a mistake. */
    async load(active, { jwks }) {
      const { keys, warnings } = await importKeys(jwks, algorithms, Math.floor(now() / 1000))
      const isUsable = keys.length > 0 || active !== undefined
      return isUsable ? loaded(keys, warnings) : notLoaded(warnings)
    },
    initial: undefined,
    pollMs: REFRESH_MS,
    retryMs: COOLDOWN_MS,
    onActivated(keys, warnings) {
      const kids = keys && loggedItems(keys).map(({ kid }) => kid)
      log.info({ ...logFields, keys: keys?.length, kids }, 'a new JWK Set is active')
      const problems = loggedItems(warnings)
      if (problems.length > 0) log.warn({ ...logFields, problems }, 'a part of the JWK Set cannot be used')
    },
    onFailed(problems) {
      const outcome = keySet.current() ? 'the last good one stays active' : 'there is none yet'
      log.error({ ...logFields, problems: loggedItems(problems) }, `the JWK Set cannot be used, ${outcome}`)
    },
    onPolled(isCurrent) {
      if (isCurrent && record.last === 'failed') log.info(logFields, 'the JWK Set can be used again')
      record.last = isCurrent ? 'ok' : 'failed'
      record.counts[record.last]++
      if (isCurrent) record.goodAtMs = now()
      else record.failedAtMs = now()
    },
    onError: (err) => log.error({ ...logFields, err }, 'a JWK Set could not be applied'),
  })
  const fetches: Readonly<FetchRecord> = record
  return { keySet, fetches }
}

/** Finds keys in the active set. Fetches the set, if due, for an unknown kid, whose key may be new. */
function createFinder(
  { keySet, fetches }: ReturnType<typeof openKeySet>,
  { algorithms, now }: RemoteKeysOptions,
) {
  let fetching: Promise<unknown> = Promise.resolve()
  let askedAtMs = Number.NEGATIVE_INFINITY
  const fetch = () => {
    fetching = keySet.refresh()
  }
  // `Math.abs`, because the clock may be set back.
  const isPast = (atMs: number) => Math.abs(now() - atMs) >= COOLDOWN_MS

  function findNow(kid: string | undefined, alg: string): FoundKey {
    const keys = keySet.current()
    return keys ? findInSet(keys, algorithms, kid, alg) : failed('unavailable')
  }

  async function findNewer(kid: string | undefined, alg: string): Promise<FoundKey> {
    if (keySet.current() !== undefined && isPast(askedAtMs) && isPast(fetches.failedAtMs)) {
      askedAtMs = now()
      fetch() // also during a fetch, which may have begun before the key was published
    }
    const waiting = new AbortController()
    const timeout = sleep(WAIT_MS, undefined, { ref: false, signal: waiting.signal }).catch(() => {})
    await Promise.race([fetching, timeout])
    waiting.abort() // else the timer of each token would stay
    return findNow(kid, alg)
  }

  const findKey: FindKey = (kid, alg) => {
    const found = findNow(kid, alg)
    if (found.ok || found.error === 'algorithm') return found
    return found.error === 'unavailable' || kid !== undefined ? findNewer(kid, alg) : found
  }
  return { findKey, fetch, whenFetched: () => fetching }
}

/** Fetches from `start` to `stop`, and never rejects. */
export interface RemoteKeys {
  readonly issuer: string
  readonly findKey: FindKey
  /** The keys that have a kid, for a sidecar without keys of its own. */
  readonly ring: () => KeyRing
  readonly state: () => KeySetState
  readonly fetches: Readonly<Record<ReloadResult, number>>
  /** True once there is a good set. False if stopped earlier. */
  readonly whenLoaded: Promise<boolean>
  /** Resolves when the newest fetch has ended, well or not. */
  whenFetched(): Promise<unknown>
  subscribe(onChange: () => void): void
  start(): void
  reload(): Promise<unknown>
  stop(): void
}

export function createRemoteKeys(options: RemoteKeysOptions): RemoteKeys {
  const { issuer, now } = options
  const stopping = new AbortController()
  const opened = openKeySet(options, stopping.signal)
  const { keySet, fetches } = opened
  const { findKey, fetch, whenFetched } = createFinder(opened, options)
  return {
    issuer,
    findKey,
    ring: () => ({
      keys: new Map(keySet.current()?.flatMap((key) => (key.kid === '' ? [] : [[key.kid, key]]))),
    }),
    state() {
      const isLoaded = keySet.current() !== undefined
      const ageSeconds = isLoaded ? Math.max(0, (now() - fetches.goodAtMs) / 1000) : undefined
      return { loaded: isLoaded, ageSeconds, lastFetch: fetches.last }
    },
    fetches: fetches.counts,
    whenLoaded: keySet.whenLoaded,
    whenFetched,
    subscribe: (onChange) => keySet.subscribe(onChange),
    start() {
      keySet.start()
      fetch()
    },
    reload: () => keySet.reload(),
    stop() {
      stopping.abort()
      keySet.stop()
    },
  }
}
