/**
 * Slows the guessing of secrets, without a way to lock anybody out.
 *
 * In: each login attempt, before its secret is hashed, and how it ended. Out: go on, or wait so many seconds.
 * Failures are counted for one pair of account and client: other clients of the account and other accounts of
 * the client are untouched, and an account that does not exist counts like one that does. A throttled pair is
 * refused before its secret is looked at, right or wrong, or the throttle would tell right from wrong.
 * There are never more attempts of a pair under way than it has failures left: others wait in line until those have
 * ended, so that a thousand guesses sent at once are no more than the same guesses one by one, while a
 * thousand right logins are only a little slower. The line is bounded in length and in time.
 *
 * The table is bounded. When it is full the window that began first is dropped. Whoever wants to drop his own
 * has to fail as many logins as the table has places inside one window, and wins `count` guesses:
 * for each of them thousands of logins and their hashing, far dearer than waiting. Nobody else is locked
 * out by a full table; all it can do is forget a failure early.
 *
 * This is plain code over lru-cache because rate-limiter-flexible's memory limiter reads the system's clock,
 * starts a timer for each key, has no bound, and counts only what is over, not what is under way.
 *
 * @module
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { clientNetwork } from './client-network.ts'
import type { LoginVerdict } from './store.ts'

/** Permission to try a login. */
export interface Attempt {
  readonly ok: true
  /**
   * Must be called once the attempt is over, however it ended; a second call does nothing. Only `rejected` is a
   * failure. `accepted` clears the pair; `busy` and `unavailable` leave it as it was.
   */
  settle(outcome: LoginVerdict): void
}

/** No permission: after too many failures (`throttled`), or because too many attempts are under way (`busy`). */
export interface NoAttempt {
  readonly ok: false
  readonly reason: 'throttled' | 'busy'
  readonly retryAfterSeconds: number
}

/** A place in line. */
export interface InLine {
  readonly ok: 'later'
  /** Resolves when it is this one's turn, or will not be; with nothing after {@link giveUp}. Never rejects. */
  readonly turn: Promise<Attempt | NoAttempt | undefined>
  /** Gives the place up. */
  giveUp(): void
}

/** Permission to try a login, or none, or a place in line for it. */
export type Reservation = Attempt | NoAttempt | InLine

/** A login that ended and counts: a failure, or the success that clears those of its pair. */
export interface ThrottleNote {
  /** Account and client, as the throttle names them. */
  readonly pair: string
  readonly failed: boolean
}

/** Counts failed logins. */
export interface LoginThrottle {
  /**
   * Asks permission for one attempt.
   *
   * @param address - the client's address as text; see `client-network.ts` for which ones count as one
   */
  reserve(accountId: string, address: string): Reservation
  /** Counts a login that ended in another process that shares the listener. */
  learn(note: ThrottleNote): void
}

/** How the throttle counts. */
export interface LoginThrottleOptions {
  /** How many failures a pair has in one window. */
  readonly count: number
  /** The length of a window, from the first failure on. */
  readonly windowSeconds: number
  /** How many pairs are remembered at most. */
  readonly maxPairs?: number
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told of each login that ended here and counts. */
  readonly onNote?: (note: ThrottleNote) => void
  /** Calls back after a time and returns how to prevent it; default: `setTimeout`. */
  readonly after?: (ms: number, callback: () => void) => () => void
}

/** How long one waits in line at most: as long as the queue for slow hashing may take. */
const MOST_WAIT_MS = 5000

/** How many wait for one pair at most, and for all of them: each holds a request open. */
const MOST_IN_LINE = { pair: 100, all: 1000 } as const

/** Told to try again soon: those under way may yet succeed. */
const BUSY: NoAttempt = { ok: false, reason: 'busy', retryAfterSeconds: 1 }

/** Tells one that stands in line what became of it, once. */
type TellTurn = (outcome: Attempt | NoAttempt | undefined) => void

/** The failures of one pair in one window. */
interface Failures {
  readonly pair: string
  readonly since: number
  count: number
}

/** Makes a throttle. */
export function createLoginThrottle(options: LoginThrottleOptions): LoginThrottle {
  const { count, windowSeconds, maxPairs = 100_000, now, onNote = () => {}, after = afterTimeout } = options
  // Never read with `get`: the order stays that of first failures, so the oldest window is the one dropped.
  const failed = new LRUCache<string, Failures>({ max: maxPairs })
  const underWay = new Map<string, number>()
  // Whoever came first stands first. No pair is in here without anybody.
  const lines = new Map<string, Set<TellTurn>>()
  let inLine = 0

  /** Milliseconds until the window is over. A clock that was set back ends it, rather than prolong it. */
  function remaining({ since }: Failures): number {
    const age = now() - since
    return age < 0 ? 0 : Math.max(0, windowSeconds * 1000 - age)
  }

  function current(pair: string): Failures | undefined {
    const failures = failed.peek(pair)
    return failures !== undefined && remaining(failures) > 0 ? failures : undefined
  }

  function addFailure(pair: string): void {
    const failures = current(pair)
    if (failures !== undefined) {
      failures.count++
      return
    }
    failed.delete(pair) // so that a new window goes to the end of the order
    failed.set(pair, { pair, since: now(), count: 1 })
    // Two at most: the table shrinks faster than it grows, and no login pays for many.
    dropOldestIfOver()
    dropOldestIfOver()
  }

  function dropOldestIfOver(): void {
    const oldest = failed.rvalues().next().value as Failures // one has just been added
    if (remaining(oldest) === 0) failed.delete(oldest.pair)
  }

  function learn({ pair, failed: hasFailed }: ThrottleNote): void {
    if (hasFailed) addFailure(pair)
    else failed.delete(pair)
    serve(pair)
  }

  function release(pair: string): void {
    const others = Number(underWay.get(pair)) - 1 // each reservation is released once
    if (others > 0) underWay.set(pair, others)
    else underWay.delete(pair)
  }

  /** What one more attempt gets that waits for nobody; nothing when those under way decide. */
  function ask(pair: string): Attempt | NoAttempt | undefined {
    const failures = current(pair)
    const failedSoFar = failures?.count ?? 0
    if (failures !== undefined && failedSoFar >= count) {
      return { ok: false, reason: 'throttled', retryAfterSeconds: Math.ceil(remaining(failures) / 1000) }
    }
    const pending = underWay.get(pair) ?? 0
    if (failedSoFar + pending >= count) return undefined
    underWay.set(pair, pending + 1)
    let settled = false
    return {
      ok: true,
      settle(outcome) {
        if (settled) return
        settled = true
        release(pair)
        if (outcome !== 'rejected' && outcome !== 'accepted') return serve(pair)
        const note = { pair, failed: outcome === 'rejected' }
        learn(note)
        onNote(note)
      },
    }
  }

  /** Lets those in line go on, as many as may, or sends all of them away. */
  function serve(pair: string): void {
    for (const tellTurn of lines.get(pair) ?? []) {
      const answer = ask(pair)
      if (answer === undefined) return
      tellTurn(answer)
    }
  }

  function standInLine(pair: string): NoAttempt | InLine {
    const line = lines.get(pair) ?? new Set()
    if (line.size >= MOST_IN_LINE.pair || inLine >= MOST_IN_LINE.all) return BUSY
    let end: TellTurn | undefined
    const turn = new Promise<Parameters<TellTurn>[0]>((resolve) => {
      const place: TellTurn = (outcome) => {
        if (!line.delete(place)) return
        inLine--
        if (line.size === 0) lines.delete(pair)
        cancel()
        resolve(outcome)
      }
      const cancel = after(MOST_WAIT_MS, () => place(BUSY))
      line.add(place)
      end = place
    })
    lines.set(pair, line)
    inLine++
    return { ok: 'later', turn, giveUp: () => end?.(undefined) }
  }

  return {
    learn,
    reserve(accountId, address) {
      // The digest, because account names are the client's choice and may be long.
      const pair = `${hash('sha256', accountId, 'base64url')} ${clientNetwork(address)}`
      // Whoever stands in line goes first.
      return (lines.has(pair) ? undefined : ask(pair)) ?? standInLine(pair)
    },
  }
}

function afterTimeout(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}
