/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 * After a failure, the last good version stays active. Each failure is reported once. When an operator asks for a reload,
 * the source is loaded at once, even if it is unchanged or incomplete, and the result is always reported.
 * `detect` decides what follows from a poll. `Reloadable` polls, loads, activates and reports.
 */
import { type Loaded, notLoaded } from '../base/result.ts'

/** What the polls have found. */
export interface Versions {
  /** The version of the active value. Undefined until a version has been loaded. */
  readonly active: string | undefined
  /** The version that was rejected after the last activation. A forced reload can reject the active version itself. */
  readonly rejected?: string | undefined
  /** The version that the newest poll found, and how many polls in a row found it. */
  readonly found: string | undefined
  readonly polls: number
  /** How many polls in a row, since the last activation, found versions that had not settled. */
  readonly unsettledPolls: number
}

/** A growing file differs at each poll. A load after one poll could activate a part of a revocation list. */
const STABLE_POLLS = 2
/** Earlier, files may be incomplete: a key may follow its certificate. */
const SETTLED_POLLS = 5
const RETRY_POLLS = 25
const UNSETTLED_POLLS = 50

/**
 * Decides what follows from a poll. `settles`: the source changes in steps, as files do.
 *
 *   version found                       polls in a row that found it     action   if the load fails
 *   active, none rejected since         any                              keep
 *   other, the source does not settle   any                              load     rejected
 *   other, the source settles           2         (files: 0.2 to 0.4 s)  load     ignored: it may be incomplete
 *                                       5         (0.8 to 1.0 s)         load     rejected
 *                                       30, 55, … (every 5 s)            load     rejected; the cause may be temporary
 *                                       any, every 50 unsettled polls    load     rejected (`isOverdue`)
 *                                       any other                        wait
 *
 * `isSettled`: a failure rejects the version, which is reported once. A good load of a source that settles counts only if the
 * source has not changed meanwhile, unless it is overdue: it may change all the time.
 */
export function detect(before: Versions, found: string, settles: boolean) {
  const polls = found === before.found ? before.polls + 1 : 1
  const isSettling = settles && polls < SETTLED_POLLS
  const unsettledPolls = isSettling ? before.unsettledPolls + 1 : 0
  const isOverdue = isSettling && unsettledPolls % UNSETTLED_POLLS === 0
  const isCurrent = found === before.active && before.rejected === undefined
  const isDue = polls === STABLE_POLLS || (polls - SETTLED_POLLS) % RETRY_POLLS === 0
  const action = isCurrent ? 'keep' : isDue || isOverdue || !settles ? 'load' : 'wait'
  const versions: Versions = { ...before, found, polls, unsettledPolls }
  return { versions, action, isSettled: !isSettling || isOverdue, isOverdue } as const
}

export const RELOAD_RESULTS = ['ok', 'failed'] as const
export type ReloadResult = (typeof RELOAD_RESULTS)[number]

/** What a poll finds. */
export interface Found<T> {
  /** A text that differs after every change of the source. */
  readonly version: string
  /** Loads this version, or a newer one. `isForced`: an operator asks for a reload. */
  readonly load: (active: T, isForced: boolean) => Promise<Loaded<T>>
}

interface ReloadableOptions<T> {
  /** Returns what the source has, or why the source is not available. */
  readonly poll: () => Promise<Loaded<Found<T>>>
  /** The value until the first load. `version`: set if this value already comes from the source. */
  readonly initial: T
  readonly version?: string
  /** The source changes in steps. Default: false. */
  readonly settles?: boolean
  readonly pollMs: number
  /** The pause between polls while the source is not available, or its version is rejected. Default: `pollMs`. */
  readonly retryMs?: number
  /** Reports a new version, after the subscribers have acted on it. */
  readonly onActivated?: (fresh: T, warnings: readonly string[]) => void
  /** Reports once each version that was rejected, and each reason why the source is not available. */
  readonly onFailed: (problems: readonly string[]) => void
  /** Reports each poll. `isCurrent`: the source is available, and its version is the active one. */
  readonly onPolled?: (isCurrent: boolean) => void
  readonly onError: (error: unknown) => void
}

const INTERNAL_ERROR = notLoaded(['could not be loaded because of an internal error'])

/** Called in the order of `subscribe`. Must not throw: the later ones would not be called. */
type Subscriber<T> = (fresh: T, former: T) => void

export class Reloadable<T> {
  readonly #options: ReloadableOptions<T>
  readonly #subscribers: Subscriber<T>[] = []
  #value: T
  #versions: Versions
  /** Why the source is not available. */
  #unavailable: string | undefined
  #isStarted = false
  #isStopped = false
  #timer: NodeJS.Timeout | undefined
  #resolveLoaded: (isLoaded: boolean) => void = () => {}
  /** The next poll waits for this one. */
  #newestPoll: Promise<unknown> = Promise.resolve()
  /** The poll that is queued but has not begun. It will find all changes made until now. */
  #nextPoll: Promise<boolean> | undefined

  constructor(options: ReloadableOptions<T>) {
    this.#options = options
    this.#value = options.initial
    this.#versions = { active: options.version, found: options.version, polls: 1, unsettledPolls: 0 }
  }

  readonly current = (): T => this.#value

  /** Resolves with true once the value is current, or with false if stopped earlier. */
  readonly whenLoaded = new Promise<boolean>((resolve) => {
    this.#resolveLoaded = resolve
  })

  subscribe(subscriber: Subscriber<T>): void {
    this.#subscribers.push(subscriber)
  }

  /** Begins to poll: at once if no version is active, and then keeps the process alive until one is. */
  start(): void {
    this.#isStarted = true
    if (this.#versions.active === undefined) void this.refresh()
    else this.#schedule()
  }

  /** Polls now. Resolves with whether the value is as new as this call. Concurrent calls share a poll. Never rejects. */
  refresh(): Promise<boolean> {
    this.#nextPoll ??= this.#enqueue(false)
    return this.#nextPoll
  }

  /** Loads the source, even if it has not changed. Never rejects. */
  reload(): Promise<unknown> {
    return this.#enqueue(true)
  }

  /** Stops polling, and drops the result of a load in progress. The value stays usable. */
  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
    this.#resolveLoaded(false)
  }

  #enqueue(isForced: boolean): Promise<boolean> {
    const { onPolled, onError } = this.#options
    const done = this.#newestPoll.then(async () => {
      if (!isForced) this.#nextPoll = undefined
      clearTimeout(this.#timer)
      let isCurrent = false
      try {
        if (!this.#isStopped) isCurrent = await this.#poll(isForced)
        if (!this.#isStopped) onPolled?.(isCurrent)
      } catch (error) {
        onError(error)
      }
      this.#schedule()
      if (isCurrent) this.#resolveLoaded(true)
      return isCurrent
    })
    this.#newestPoll = done
    return done
  }

  /** Resolves with whether the current version of the source is active. */
  async #poll(isForced: boolean): Promise<boolean> {
    const found = await this.#find()
    if (found === undefined) return false
    const { version, load } = found
    const { settles = false } = this.#options
    const { versions, action, isSettled, isOverdue } = detect(this.#versions, version, settles)
    this.#versions = versions
    if (action !== 'load' && !isForced) return action === 'keep'
    const next = await this.#guard(load(this.#value, isForced))
    if (this.#isStopped) return false
    if (!next.ok) {
      if (isSettled || isForced) this.#reject(version, next.problems, isForced)
      return false
    }
    // A growing file may have been loaded partly.
    const mustBeUnchanged = settles && !isForced && !isOverdue
    if (mustBeUnchanged && (await this.#find())?.version !== version) return false
    this.#activate(next.value, version, next.warnings)
    return true
  }

  /** Resolves with undefined if the source is not available, or if stopped meanwhile. */
  async #find(): Promise<Found<T> | undefined> {
    const found = await this.#guard(this.#options.poll())
    if (this.#isStopped) return undefined
    const unavailable = found.ok ? undefined : found.problems.join('\n')
    const isReported = unavailable === this.#unavailable
    this.#unavailable = unavailable
    if (!found.ok && !isReported) this.#options.onFailed(found.problems)
    return found.ok ? found.value : undefined
  }

  #reject(version: string, problems: readonly string[], isForced: boolean): void {
    const isReported = version === this.#versions.rejected && !isForced
    this.#versions = { ...this.#versions, rejected: version }
    if (!isReported) this.#options.onFailed(problems)
  }

  #activate(fresh: T, version: string, warnings: readonly string[]): void {
    this.#versions = { ...this.#versions, active: version, rejected: undefined, unsettledPolls: 0 }
    const former = this.#value
    this.#value = fresh
    // Subscribers come first: they drop what depends on the former version, even if the report fails.
    for (const subscriber of this.#subscribers) subscriber(fresh, former)
    this.#options.onActivated?.(fresh, warnings)
  }

  #guard<R>(loading: Promise<Loaded<R>>): Promise<Loaded<R>> {
    return loading.catch((error: unknown) => {
      this.#options.onError(error)
      return INTERNAL_ERROR
    })
  }

  #schedule(): void {
    clearTimeout(this.#timer)
    if (!this.#isStarted || this.#isStopped) return
    const { pollMs, retryMs = pollMs } = this.#options
    const { active, rejected } = this.#versions
    const isFailing = rejected !== undefined || this.#unavailable !== undefined
    this.#timer = setTimeout(() => this.refresh(), isFailing ? retryMs : pollMs)
    if (active !== undefined) this.#timer.unref()
  }
}
