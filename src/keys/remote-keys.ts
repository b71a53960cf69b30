/**
 * Keeps the key set of one issuer current: fetches its JWK Set every minute, and for an unknown kid.
 * The last good set stays active until the next good one. A token waits for its own issuer only.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Logger, loggedItems } from '../base/log.ts'
import { failed, type Loaded, loaded, notLoaded } from '../base/result.ts'
import { type Found, type PollResult, Reloadable, type ReloadResult } from '../reload/reloadable.ts'
import { fetchJwks, importKeys, type KeySetSource } from './jwk-set.ts'
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

/** Fetches from `start` to `stop`, and never rejects. */
export class RemoteKeys {
  readonly issuer: string
  readonly #fetches = { ok: 0, failed: 0 }
  readonly fetches: Readonly<Record<ReloadResult, number>> = this.#fetches
  readonly whenLoaded: Promise<Loaded<boolean>>
  readonly #options: RemoteKeysOptions
  readonly #keySet: Reloadable<readonly Key[] | undefined>
  readonly #stopping = new AbortController()
  #newestFetch: Promise<unknown> = Promise.resolve()
  #lastFetch: ReloadResult | undefined
  #goodAtMs = 0
  #failedAtMs = Number.NEGATIVE_INFINITY
  #fetchedForKidAtMs = Number.NEGATIVE_INFINITY

  constructor(options: RemoteKeysOptions) {
    const { issuer, jwksUrl, log } = options
    const { origin, pathname } = new URL(jwksUrl)
    const logFields = { issuer, from: `${origin}${pathname}` } // the query may be a secret
    this.issuer = issuer
    this.#options = options
    this.#keySet = new Reloadable<readonly Key[] | undefined>({
      poll: () => this.#fetch(),
      initial: undefined,
      pollMs: REFRESH_MS,
      failingMs: COOLDOWN_MS,
      onPolled: (polled) => this.#report(polled, logFields),
      onError: (err) => log.error({ ...logFields, err }, 'a JWK Set could not be applied'),
    })
    this.whenLoaded = this.#keySet.whenLoaded
  }

  /**
   * Finds a key in the active set.
   * An unknown kid may belong to a new key, so it causes a fetch if one is due.
   */
  readonly findKey: FindKey = (kid, alg) => {
    const found = this.#findNow(kid, alg)
    if (found.ok || found.error === 'algorithm') {
      return found
    }
    if (found.error === 'unknown_key' && kid === undefined) {
      return found
    }
    return this.#findNewer(kid, alg)
  }

  /** Returns the keys that have a kid, for a sidecar without keys of its own. */
  readonly ring = (): KeyRing => {
    const named = this.#keySet.current()?.filter(({ kid }) => kid !== '') ?? []
    return { keys: new Map(named.map((key) => [key.kid, key])) }
  }

  readonly condition = () => ({ name: 'keys', ok: this.state().loaded, ...this.state() }) as const

  readonly state = (): KeySetState => {
    const isLoaded = this.#keySet.current() !== undefined
    const ageSeconds = isLoaded ? Math.max(0, (this.#options.now() - this.#goodAtMs) / 1000) : undefined
    return { loaded: isLoaded, ageSeconds, lastFetch: this.#lastFetch }
  }

  /** Resolves when the newest fetch has ended, well or not. */
  readonly whenFetched = (): Promise<unknown> => this.#newestFetch

  subscribe(onChange: () => void): void {
    this.#keySet.subscribe(onChange)
  }

  start(): void {
    this.#keySet.start()
    this.#newestFetch = this.#keySet.refresh() // tokens wait for this first fetch
  }

  reload(): Promise<unknown> {
    return this.#keySet.reload()
  }

  stop(): void {
    this.#stopping.abort()
    this.#keySet.stop()
  }

  async #fetch(): Promise<Loaded<Found<readonly Key[] | undefined>>> {
    const fetched = await fetchJwks(this.#options, this.#stopping.signal)
    if (!fetched.ok) {
      return fetched
    }
    const jwks = fetched.value
    // The version ignores the order of the keys, because a new version empties the token cache.
    const sorted = jwks.map((jwk) => JSON.stringify(jwk)).sort()
    const load = async (active: readonly Key[] | undefined) => {
      const { keys, warnings } = await importKeys(jwks, this.#options.algorithms)
      // A set without usable keys withdraws the keys of the active set. As the first set, it is a mistake.
      const isUsable = keys.length > 0 || active !== undefined
      return isUsable ? loaded(keys, warnings) : notLoaded(warnings)
    }
    return loaded({ version: sorted.join(), load })
  }

  #report(polled: PollResult<readonly Key[] | undefined>, logFields: object): void {
    const { log, now } = this.#options
    const wasFailing = this.#lastFetch === 'failed'
    this.#lastFetch = polled.ok ? 'ok' : 'failed'
    this.#fetches[this.#lastFetch]++
    if (polled.ok) {
      this.#goodAtMs = now()
    } else {
      this.#failedAtMs = now()
    }
    if (polled.mustReport) {
      this.#logVersion(polled, logFields)
    }
    if (polled.ok && wasFailing) {
      log.info(logFields, 'the JWK Set can be used again')
    }
  }

  #logVersion(polled: Loaded<readonly Key[] | undefined>, logFields: object): void {
    const { log } = this.#options
    if (!polled.ok) {
      const active = this.#keySet.current() ? 'the last good one stays active' : 'there is none yet'
      const problems = loggedItems(polled.problems)
      log.error({ ...logFields, problems }, `the JWK Set cannot be used, ${active}`)
      return
    }
    const keys = polled.value ?? []
    const kids = loggedItems(keys).map(({ kid }) => kid)
    log.info({ ...logFields, keys: keys.length, kids }, 'a new JWK Set is active')
    if (polled.warnings.length > 0) {
      const problems = loggedItems(polled.warnings)
      log.warn({ ...logFields, problems }, 'a part of the JWK Set cannot be used')
    }
  }

  #findNow(kid: string | undefined, alg: string): FoundKey {
    const keys = this.#keySet.current()
    return keys ? findInSet(keys, this.#options.algorithms, kid, alg) : failed('unavailable')
  }

  async #findNewer(kid: string | undefined, alg: string): Promise<FoundKey> {
    const now = this.#options.now()
    // `Math.abs`, because the clock may be set back.
    const isCool = (atMs: number) => Math.abs(now - atMs) >= COOLDOWN_MS
    const isDue = isCool(this.#fetchedForKidAtMs) && isCool(this.#failedAtMs)
    if (this.#keySet.current() !== undefined && isDue) {
      this.#fetchedForKidAtMs = now
      // Also during a fetch, which may have begun before the key was published.
      this.#newestFetch = this.#keySet.refresh()
    }
    const waiting = new AbortController()
    const timeout = sleep(WAIT_MS, undefined, { ref: false, signal: waiting.signal }).catch(() => {})
    await Promise.race([this.#newestFetch, timeout])
    waiting.abort() // else the timer of each token would stay
    const found = this.#findNow(kid, alg)
    const isUnknown = !found.ok && found.error === 'unknown_key'
    // The kid may be that of a new key, which the issuer could not send.
    return isUnknown && this.#lastFetch === 'failed' ? failed('unavailable') : found
  }
}
