/**
 * Keeps the keys of another issuer in force.
 *
 * In: the URL of its JWK Set. Out: the newest good set, fetched every minute and, for a kid that nobody knows,
 * at once, though never twice within five seconds: tokens with made-up kids cost one fetch in that time, whoever
 * sends how many of them. While the issuer is away or answers nonsense, the last good set stays in force.
 * Nobody waits for one that is slow: a fetch is waited for in its first second only, by a bounded number of askers.
 * Nothing here rejects.
 *
 * @module
 */
import { isDeepStrictEqual } from 'node:util'
import type { JWK } from 'jose'
import type { Logger } from '../ops/log.ts'
import type { Loaded } from '../reload/loaded.ts'
import type { KeyRing } from './key-ring.ts'
import { type Fetched, fetchDocument } from './remote-fetch.ts'
import { parseJwkSet } from './remote-jwk-set.ts'

/** What became of a fetch: a good set, whether new or not, or none. */
export const FETCH_RESULTS = ['ok', 'failed'] as const

/** One of the results; a label. */
export type FetchResult = (typeof FETCH_RESULTS)[number]

/** What the keys are made of. */
export interface RemoteKeysOptions {
  readonly url: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called right after another set has come into force. */
  readonly onChange?: (ring: KeyRing) => void
  readonly onFetch?: (result: FetchResult) => void
  /** Default: {@link fetchDocument}. Does not reject. */
  readonly fetchSet?: (url: string, abort: AbortController) => Promise<Fetched>
  /** Calls back after a time and returns how to prevent it; default: `setTimeout`. */
  readonly after?: (ms: number, callback: () => void) => () => void
  /** The same, for how long a fetch is waited for; default: `setTimeout`. */
  readonly afterPatience?: (ms: number, callback: () => void) => () => void
}

/** How things stand. */
export interface RemoteKeysState {
  /** Whether there has been a good set. */
  readonly loaded: boolean
  /** Seconds since the issuer last sent a good set; absent before the first. */
  readonly ageSeconds?: number
  /** Absent before the first fetch is over. */
  readonly lastFetch?: FetchResult
}

/** Keys that follow an issuer. */
export interface RemoteKeys {
  /** The keys in force; none before the first set. */
  ring(): KeyRing
  /** Looks for a kid that is not in the ring, if that is due; says, within a second or two, whether it is there now. */
  refresh(kid: string): Promise<boolean>
  /** Fetches the set now, whatever is due, and resolves when that is over. */
  refetch(): Promise<void>
  /** Resolves with true once there is a first set, with false if it is stopped before. */
  firstSet(): Promise<boolean>
  state(): RemoteKeysState
  /** Fetches no more, and ends the fetch under way. */
  stop(): void
}

/** How often the set is fetched when all is well. */
const REFRESH_MS = 60_000

/** How long after a fetch for an unknown kid no other one is made. */
const COOLDOWN_MS = 5000

/** How long after a failed fetch the next one is made: doubled from the first to the last. */
const RETRY_MS = { first: 500, last: 5000 } as const

/** For how long after its begin a fetch is waited for. It goes on, and what it brings comes into force. */
const PATIENCE_MS = 1000

/** How many may wait for a fetch at once: each holds a request open. */
const MOST_WAITING = 256

const NO_KEYS: KeyRing = { verification: new Map() }

/** Begins to fetch. Its timer keeps the process alive until it is stopped, as a start that waits for keys must. */
export function createRemoteKeys(options: RemoteKeysOptions): RemoteKeys {
  const { url, log, now, onChange, onFetch, fetchSet = fetchBounded, after = afterTimeout } = options
  const { afterPatience = afterTimeout } = options
  const { origin, pathname } = new URL(url)
  const from = `${origin}${pathname}` // a query may be a secret
  let ring = NO_KEYS
  let goodAt: number | undefined
  let lastFetch: FetchResult | undefined
  let failures = 0
  let told = ''
  let lookedForKidAt = Number.NEGATIVE_INFINITY
  let underWay: Promise<void> | undefined
  /** Resolves when the fetch under way is over, or has taken too long to wait for. */
  let answered: Promise<void> | undefined
  let waiting = 0
  let abort = new AbortController()
  let cancelNext: (() => void) | undefined
  let stopped = false
  let settleFirst: ((loaded: boolean) => void) | undefined
  const first = new Promise<boolean>((resolve) => {
    settleFirst = resolve
  })
  fetchNow()

  return {
    ring: () => ring,
    firstSet: () => first,
    state: () => ({
      loaded: goodAt !== undefined,
      ...(goodAt !== undefined && { ageSeconds: Math.max(0, (now() - goodAt) / 1000) }),
      ...(lastFetch !== undefined && { lastFetch }),
    }),
    async refresh(kid) {
      if (waiting >= MOST_WAITING) return ring.verification.has(kid)
      waiting++
      // A fetch under way may have begun before the key was published; another one follows it then, if it is due.
      await answered
      if (!ring.verification.has(kid) && underWay === undefined && isKidFetchDue()) {
        lookedForKidAt = now()
        fetchNow()
      }
      await answered
      waiting--
      return ring.verification.has(kid)
    },
    async refetch() {
      await underWay
      fetchNow()
      await underWay
    },
    stop() {
      stopped = true
      cancelNext?.()
      abort.abort()
      settleFirst?.(false)
    },
  }

  /** A clock that was set back must not hold fetches off. */
  function isKidFetchDue(): boolean {
    const since = now() - lookedForKidAt
    return since < 0 || since >= COOLDOWN_MS
  }

  function fetchNow(): void {
    if (stopped || underWay !== undefined) return
    cancelNext?.()
    let cancelPatience: (() => void) | undefined
    const patience = new Promise<void>((resolve) => {
      cancelPatience = afterPatience(PATIENCE_MS, resolve)
    })
    underWay = fetchOnce()
      .then((loaded) => {
        if (stopped) return
        if (loaded.ok) adopt(loaded.value, loaded.warnings)
        else keep(loaded.problems)
      })
      .catch((error: unknown) => log.error({ from, err: error }, 'fault while a JWK Set came into force'))
      .then(() => {
        underWay = undefined
        cancelPatience?.()
        if (stopped) return
        const retry = Math.min(RETRY_MS.first * 2 ** (failures - 1), RETRY_MS.last)
        cancelNext = after(failures === 0 ? REFRESH_MS : retry, fetchNow)
      })
    answered = Promise.race([underWay, patience])
  }

  async function fetchOnce(): Promise<Loaded<KeyRing>> {
    abort = new AbortController()
    const fetched = await fetchSet(url, abort)
    if (!fetched.ok) return { ok: false, problems: [fetched.problem] }
    return parseJwkSet(fetched.bytes, Math.floor(now() / 1000))
  }

  function adopt(next: KeyRing, warnings: readonly string[]): void {
    if (failures > 0 && goodAt !== undefined) log.info({ from }, 'the JWK Set can be used again')
    goodAt = now()
    failures = 0
    if (tellOnce(warnings)) for (const warning of warnings) log.warn({ from }, `JWK Set: ${warning}`)
    // The same set again leaves the ring as it is, and with it every verified token that is remembered.
    if (!isDeepStrictEqual(publicJwks(ring), publicJwks(next))) {
      ring = next
      log.info({ from, kids: [...ring.verification.keys()] }, 'a new JWK Set is in force')
      onChange?.(ring)
    }
    lastFetch = 'ok'
    onFetch?.('ok')
    settleFirst?.(true)
  }

  function keep(problems: readonly string[]): void {
    failures++
    if (tellOnce(problems)) {
      const outcome = goodAt === undefined ? 'there is none yet' : 'the last good one stays in force'
      log.error({ from, problems }, `the JWK Set cannot be used, ${outcome}`)
    }
    lastFetch = 'failed'
    onFetch?.('failed')
  }

  /** Whether these lines are other ones than those of the fetch before. */
  function tellOnce(lines: readonly string[]): boolean {
    const text = lines.join('\n')
    const isNew = text !== told
    told = text
    return isNew
  }
}

const fetchBounded = (url: string, abort: AbortController) => fetchDocument(url, { abort })

function afterTimeout(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}

function publicJwks({ verification }: KeyRing): ReadonlyMap<string, JWK | undefined> {
  return new Map([...verification].map(([kid, { publicJwk }]) => [kid, publicJwk]))
}
