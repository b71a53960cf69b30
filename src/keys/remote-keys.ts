/**
 * Keeps the key set of one issuer current: fetches its JWK Set every minute, and for an unknown kid. The last good set
 * stays while the issuer is down or sends anything else. A token waits for its own issuer only.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../log.ts'
import { MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from '../reload/reloadable.ts'
import { type Loaded, loaded, notLoaded } from '../values/problem.ts'
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

/** As `/readyz` shows it. */
export interface KeySetState {
  readonly loaded: boolean
  /** How long ago the issuer last sent the active set. */
  readonly ageSeconds: number | undefined
  readonly lastFetch: ReloadResult | undefined
}

/** Fetches from `start` to `stop`. Nothing here rejects. */
export class RemoteKeys {
  readonly issuer: string
  readonly #options: RemoteKeysOptions
  readonly #logFields: { readonly issuer: string; readonly from: string }
  readonly #sets: Reloadable<KeySet | undefined>
  readonly #stopping = new AbortController()
  #fetching = Promise.resolve(true)
  #fetched: readonly UncheckedJwk[] = []
  #lastFetch: ReloadResult | undefined
  #goodAtMs = 0
  #cooldownFromMs = Number.NEGATIVE_INFINITY

  constructor(options: RemoteKeysOptions) {
    const { issuer, jwksUrl, log } = options
    const { origin, pathname } = new URL(jwksUrl)
    this.issuer = issuer
    this.#options = options
    this.#logFields = { issuer, from: `${origin}${pathname}` } // the query may be a secret
    this.#sets = new Reloadable<KeySet | undefined>({
      observe: () => this.#fetch(),
      load: () => this.#import(),
      initial: undefined,
      pollMs: REFRESH_MS,
      retryMs: COOLDOWN_MS,
      onFailed: (problems) => this.#onFailed(problems),
      onPolled: (isCurrent) => this.#onPolled(isCurrent),
      onError: (err) => log.error({ ...this.#logFields, err }, 'a JWK Set could not be applied'),
    })
    this.#sets.subscribe((keys, _former, warnings) => this.#onActive(keys, warnings))
  }

  readonly findKey: FindKey = (kid, alg) => {
    const found = this.#findNow(kid, alg)
    if (found.ok || found.reason === 'algorithm') return found
    return found.reason === 'unavailable' || kid !== undefined ? this.#findNewer(kid, alg) : found
  }

  /** For a sidecar without keys of its own: those of the set that have a kid. */
  readonly ring = (): KeyRing => ({
    keys: new Map(this.#sets.current()?.flatMap((key) => (key.kid === '' ? [] : [[key.kid, key]]))),
  })

  get whenLoaded(): Promise<boolean> {
    return this.#sets.whenLoaded
  }

  /** Resolves when the newest fetch has ended, well or not. */
  whenFetched(): Promise<unknown> {
    return this.#fetching
  }

  state(): KeySetState {
    const loaded = this.#sets.current() !== undefined
    const ageSeconds = loaded ? Math.max(0, (this.#options.now() - this.#goodAtMs) / 1000) : undefined
    return { loaded, ageSeconds, lastFetch: this.#lastFetch }
  }

  start(): void {
    this.#sets.start()
    this.#fetching = this.#sets.refresh()
  }

  reload(): Promise<unknown> {
    return this.#sets.reload()
  }

  stop(): void {
    this.#stopping.abort()
    this.#sets.stop()
  }

  #findNow(kid: string | undefined, alg: string): FoundKey {
    const keys = this.#sets.current()
    if (keys === undefined) return { ok: false, reason: 'unavailable' }
    return findInSet(keys, this.#options.algorithms, kid, alg)
  }

  /** Fetches for an unknown kid, if due: a fetch in progress may have begun before the key was published. */
  async #findNewer(kid: string | undefined, alg: string): Promise<FoundKey> {
    const { now } = this.#options
    // The clock may be set back.
    const isDue = Math.abs(now() - this.#cooldownFromMs) >= COOLDOWN_MS
    if (isDue && this.#sets.current() !== undefined) {
      this.#cooldownFromMs = now()
      this.#fetching = this.#sets.refresh()
    }
    const waiting = new AbortController()
    const timeout = sleep(WAIT_MS, undefined, { ref: false, signal: waiting.signal }).catch(() => {})
    await Promise.race([this.#fetching, timeout])
    waiting.abort() // a timer for each token would stay
    return this.#findNow(kid, alg)
  }

  /** The same keys in another order are the same version: the cache of verified tokens stays. */
  async #fetch(): Promise<Loaded<string>> {
    const fetched = await fetchJwks(this.#options, this.#stopping.signal)
    if (!fetched.ok) return fetched
    this.#fetched = fetched.value
    const sorted = this.#fetched.map((jwk) => JSON.stringify(jwk)).sort()
    return loaded(sorted.join())
  }

  /** The keys of a set that empties are withdrawn. A first set without keys is a mistake. */
  async #import(): Promise<Loaded<KeySet>> {
    const { algorithms, now } = this.#options
    const { keys, warnings } = await importKeys(this.#fetched, algorithms, Math.floor(now() / 1000))
    const isUsable = keys.length > 0 || this.#sets.current() !== undefined
    return isUsable ? loaded(keys, warnings) : notLoaded(warnings)
  }

  #onActive(keys: KeySet | undefined, warnings: readonly string[]): void {
    const { log, onChange } = this.#options
    const kids = keys?.slice(0, MAX_LOGGED_PROBLEMS).map(({ kid }) => kid)
    log.info({ ...this.#logFields, keys: keys?.length, kids }, 'a new JWK Set is active')
    const problems = warnings.slice(0, MAX_LOGGED_PROBLEMS)
    if (problems.length > 0)
      log.warn({ ...this.#logFields, problems }, 'a part of the JWK Set cannot be used')
    onChange()
  }

  #onFailed(all: readonly string[]): void {
    const outcome = this.state().loaded ? 'the last good one stays active' : 'there is none yet'
    const problems = all.slice(0, MAX_LOGGED_PROBLEMS)
    this.#options.log.error({ ...this.#logFields, problems }, `the JWK Set cannot be used, ${outcome}`)
  }

  #onPolled(isCurrent: boolean): void {
    const { issuer, log, now, onFetch } = this.#options
    if (isCurrent && this.#lastFetch === 'failed') log.info(this.#logFields, 'the JWK Set can be used again')
    this.#lastFetch = isCurrent ? 'ok' : 'failed'
    if (isCurrent) this.#goodAtMs = now()
    else this.#cooldownFromMs = now()
    onFetch(issuer, this.#lastFetch)
  }
}
