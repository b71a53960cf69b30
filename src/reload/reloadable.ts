/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 * After a failure, the last good version stays active. Each failure is reported once. When an operator asks for a reload,
 * the source is loaded at once, even if it is unchanged or incomplete, and the result is always reported.
 */
import { type Loaded, notLoaded } from '../base/result.ts'

interface Versions {
  /** The version of the active value. Undefined until a version has been loaded. */
  readonly active: string | undefined
  /** The version that was rejected after the last activation. A forced reload can reject the active version itself. */
  readonly rejected?: string
}

/** What a poll finds. */
export interface Observed {
  /** A text that differs after every change of the source. */
  readonly version: string
  /** When to load a version that is not active. Default: `now`. `tentatively`: it may be incomplete, so it is not yet rejected. */
  readonly when?: 'later' | 'tentatively' | 'now'
}

/**
 * `keep`: the active version is the newest. `wait`: nothing changes yet.
 * `loadTentatively`: the version is loaded, and activated if it is good. Otherwise nothing changes.
 * `load`: the version is loaded, and activated or rejected.
 */
type Action = 'keep' | 'wait' | 'loadTentatively' | 'load'

/**
 * Decides on the version that a poll has found:
 *
 *   version              `later`   `tentatively`     `now`
 *   active               keep      keep              keep
 *   rejected             wait      loadTentatively   loadTentatively (the cause may be temporary)
 *   other                wait      loadTentatively   load
 *
 * If a version was rejected, the active version counts as `other`: its activation reports the end of the failure.
 */
export function nextAction({ active, rejected }: Versions, found: Observed, isForced: boolean): Action {
  const { version, when } = found
  if (isForced) return 'load'
  if (version === active && rejected === undefined) return 'keep'
  if (when === 'later') return 'wait'
  return when === 'tentatively' || version === rejected ? 'loadTentatively' : 'load'
}

export const RELOAD_RESULTS = ['ok', 'failed'] as const
export type ReloadResult = (typeof RELOAD_RESULTS)[number]

interface ReloadableOptions<T, O extends Observed> {
  /** Returns what the source has, or why the source is not available. */
  readonly observe: () => Promise<Loaded<O>>
  /** `isForced`: an operator asks for a reload. */
  readonly load: (active: T, observed: O, isForced: boolean) => Promise<Loaded<T>>
  /** The value until the first load. `version`: set if this value already comes from the source. */
  readonly initial: T
  readonly version?: string
  readonly pollMs: number
  /** The pause between polls while the source is not available, or its version is rejected. */
  readonly retryMs: number
  /** Activates what a new value does not hold itself. Called before the subscribers. */
  readonly activate?: (fresh: T) => void
  /** Reports a new version, after the subscribers have acted on it. */
  readonly onActivated?: (fresh: T, warnings: readonly string[]) => void
  /** Reports once each version that was rejected, and each reason why the source is not available. */
  readonly onFailed: (problems: readonly string[]) => void
  /** Reports each poll. `isCurrent`: the source is available, and its version is the active one. */
  readonly onPolled?: (isCurrent: boolean) => void
  readonly onError: (error: unknown) => void
}

const INTERNAL_ERROR = notLoaded(['could not be loaded because of an internal error'])

type Subscriber<T> = (fresh: T, former: T) => void

export class Reloadable<T, O extends Observed = Observed> {
  readonly #options: ReloadableOptions<T, O>
  readonly #subscribers: Subscriber<T>[] = []
  #value: T
  #versions: Versions
  /** Why the source is not available. */
  #unavailable: string | undefined
  #isStarted = false
  #isStopped = false
  #timer: NodeJS.Timeout | undefined
  #settleLoaded: (isLoaded: boolean) => void = () => {}
  /** The next poll waits for this one. */
  #newestPoll: Promise<unknown> = Promise.resolve()
  /** The poll that is queued but has not begun. It will find all changes made until now. */
  #nextPoll: Promise<boolean> | undefined

  constructor(options: ReloadableOptions<T, O>) {
    this.#options = options
    this.#value = options.initial
    this.#versions = { active: options.version }
  }

  readonly current = (): T => this.#value

  /** Resolves with true once the value is current, or with false if stopped earlier. */
  readonly whenLoaded = new Promise<boolean>((resolve) => {
    this.#settleLoaded = resolve
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
    this.#settleLoaded(false)
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
      if (isCurrent) this.#settleLoaded(true)
      return isCurrent
    })
    this.#newestPoll = done
    return done
  }

  /** Resolves with whether the current version of the source is active. */
  async #poll(isForced: boolean): Promise<boolean> {
    const observed = await this.#guard(this.#options.observe())
    if (this.#isStopped) return false
    this.#reportAvailability(observed.ok ? [] : observed.problems)
    if (!observed.ok) return false
    const action = nextAction(this.#versions, observed.value, isForced)
    if (action === 'keep' || action === 'wait') return action === 'keep'
    const next = await this.#guard(this.#options.load(this.#value, observed.value, isForced))
    if (this.#isStopped || (!next.ok && action === 'loadTentatively')) return false
    if (next.ok) this.#activate(next.value, observed.value.version, next.warnings)
    else this.#reject(observed.value.version, next.problems)
    return next.ok
  }

  #reportAvailability(problems: readonly string[]): void {
    const unavailable = problems.length === 0 ? undefined : problems.join('\n')
    const isReported = unavailable === this.#unavailable
    this.#unavailable = unavailable
    if (unavailable !== undefined && !isReported) this.#options.onFailed(problems)
  }

  #reject(version: string, problems: readonly string[]): void {
    this.#versions = { active: this.#versions.active, rejected: version }
    this.#options.onFailed(problems)
  }

  #activate(fresh: T, version: string, warnings: readonly string[]): void {
    this.#versions = { active: version }
    const former = this.#value
    this.#value = fresh
    this.#options.activate?.(fresh)
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
    const { pollMs, retryMs } = this.#options
    const { active, rejected } = this.#versions
    const isFailing = rejected !== undefined || this.#unavailable !== undefined
    this.#timer = setTimeout(() => this.refresh(), isFailing ? retryMs : pollMs)
    if (active !== undefined) this.#timer.unref()
  }
}
