/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 * `PollQueue` runs the polls, `VersionChoice` decides what happens to a version, `PollTimer`
 * sets the time of the next poll.
 *
 *   the last poll has found         active value         next poll      reported (`mustReport`)
 *   the version that is active      this version         `pollMs`       no
 *   the same, and it is watched     this version         `watchedMs`    no
 *   a new version that loads        it, from now on      `pollMs`       yes
 *   one that may be incomplete      the last good one    `settlingMs`   no
 *   a new version that is rejected  the last good one    `failingMs`    yes
 *   the version that is rejected    the last good one    `failingMs`    if it loads (after `rejectedMs`)
 *   no source                       the last good one    `failingMs`    once for each problem
 *
 * When an operator asks for a reload, the source is loaded at once, even if it is unchanged
 * or incomplete. Each load is reported.
 */
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { type PollKind, PollQueue } from './poll-queue.ts'
import { type PollPauses, PollTimer, type SourceState } from './poll-timer.ts'
import { VersionChoice } from './version-choice.ts'

export const RELOAD_RESULTS = ['ok', 'failed'] as const
export type ReloadResult = (typeof RELOAD_RESULTS)[number]

/** What a poll finds. */
export interface Found<T> {
  /** A text that differs after every change of the source. */
  readonly version: string
  /**
   * Loads this version, or a newer one.
   * `incomplete`: another poll must find the version before it is loaded, or rejected.
   */
  readonly load: (active: T, isForced: boolean) => Promise<Loaded<T> | 'incomplete'>
  /** Whether the watch sees every change after this version. */
  readonly isWatched?: boolean
}

/** Calls back after a change of the source. */
export interface SourceWatch {
  start(onChange: () => void): void
  stop(): void
}

/** The active value if it is that of the source, or why it is not. `mustReport`: see the table above. */
export type PollResult<T> = Loaded<T> & { readonly mustReport: boolean }

interface ReloadableOptions<T> extends PollPauses {
  /** Returns what the source has, or why the source is not available. */
  readonly poll: () => Promise<Loaded<Found<T>>>
  /** The value until the first load. `version`: set if this value already comes from the source. */
  readonly initial: T
  readonly version?: string
  readonly watch?: SourceWatch
  /** How long a rejected version is not loaded again, unless it returns after another version. Default: 0. */
  readonly rejectedMs?: number
  /** Called after each poll with a result. A new version is active by then. */
  readonly onPolled: (result: PollResult<T>) => void
  readonly onError: (error: unknown) => void
}

const INTERNAL_ERROR = notLoaded(['could not be loaded because of an internal error'])

export class Reloadable<T> {
  readonly #options: ReloadableOptions<T>
  readonly #subscribers: ((fresh: T, former: T) => void)[] = []
  readonly #queue = new PollQueue((kind) => this.#pollInTurn(kind))
  readonly #choice: VersionChoice
  readonly #timer: PollTimer
  #value: T
  /** Why the source is not available. */
  #unavailable: string | undefined
  #isWatched = false
  #isStopped = false
  #resolveLoaded: ((first: Loaded<boolean>) => void) | undefined

  constructor(options: ReloadableOptions<T>) {
    this.#options = options
    this.#value = options.initial
    this.#choice = new VersionChoice(options.version, options.rejectedMs ?? 0)
    this.#timer = new PollTimer(options, () => this.refresh())
  }

  readonly current = (): T => this.#value

  /**
   * Resolves with true once the value is current, with false if stopped earlier, or with
   * the problems that end the start.
   */
  readonly whenLoaded = new Promise<Loaded<boolean>>((resolve) => {
    this.#resolveLoaded = resolve
  })

  /**
   * Subscribers are called in the order of `subscribe`.
   * An error of one fails the poll, after the others are called.
   */
  subscribe(subscriber: (fresh: T, former: T) => void): void {
    this.#subscribers.push(subscriber)
  }

  /** Begins to poll: at once if no version is active, and then keeps the process alive until one is. */
  start(): void {
    this.#timer.start()
    this.#options.watch?.start(() => this.#timer.wake())
    if (this.#choice.hasActive) {
      this.#setTimer('current')
    } else {
      this.refresh()
    }
  }

  /**
   * Polls now. Resolves with whether the value is as new as this call.
   * Concurrent calls share a poll. Never rejects.
   */
  refresh(): Promise<boolean> {
    return this.#queue.ask('refresh')
  }

  /** Loads the source, even if it has not changed. Calls share a load that has not begun. Never rejects. */
  reload(): Promise<unknown> {
    return this.#queue.ask('reload')
  }

  /** Stops polling, and drops the result of a load in progress. The value stays usable. */
  stop(): void {
    this.#isStopped = true
    this.#timer.stop()
    this.#options.watch?.stop()
    this.#resolveLoaded?.(loaded(false))
  }

  /** Resolves once the polls that were requested until now have ended. Never rejects. */
  readonly whenIdle = (): Promise<unknown> => this.#queue.whenIdle()

  /** Resolves with whether the value is that of the source. */
  async #pollInTurn(kind: PollKind): Promise<boolean> {
    const { onPolled, onError } = this.#options
    this.#timer.cancel()
    let polled: PollResult<T> | 'incomplete' | 'none' = 'none'
    try {
      polled = this.#isStopped ? 'none' : await this.#poll(kind === 'reload')
      if (typeof polled === 'object') {
        onPolled(polled)
      }
    } catch (error) {
      onError(error)
    }
    if (typeof polled === 'object') {
      this.#noteFirst(polled)
    }
    this.#setTimer(this.#stateAfter(polled))
    return typeof polled === 'object' && polled.ok
  }

  #noteFirst(result: PollResult<T>): void {
    if (result.ok) {
      this.#resolveLoaded?.(loaded(true))
    } else if (result.kind === 'permanent' && !this.#choice.hasActive) {
      this.#resolveLoaded?.(result)
      this.stop()
    }
  }

  #stateAfter(polled: PollResult<T> | 'incomplete' | 'none'): SourceState {
    if (polled === 'incomplete') {
      return 'settling'
    }
    if (this.#choice.hasRejected || this.#unavailable !== undefined) {
      return 'failing'
    }
    return this.#isWatched ? 'watched' : 'current'
  }

  #setTimer(state: SourceState): void {
    this.#timer.set(state, !this.#choice.hasActive)
  }

  /** `none`: a rejected version is left alone for now, or polling has stopped meanwhile. */
  async #poll(isForced: boolean): Promise<PollResult<T> | 'incomplete' | 'none'> {
    const found = await this.#guard(this.#options.poll())
    if (this.#isStopped) {
      return 'none'
    }
    const unavailable = found.ok ? undefined : found.problems.join('\n')
    const isKnown = unavailable === this.#unavailable
    this.#unavailable = unavailable
    this.#isWatched = found.ok && found.value.isWatched === true
    if (!found.ok) {
      return { ...found, mustReport: !isKnown }
    }
    switch (this.#choice.choose(found.value.version, isForced, performance.now())) {
      case 'keep':
        return { ...loaded(this.#value), mustReport: false }
      case 'wait':
        return 'none'
      case 'load':
        return this.#load(found.value, isForced)
    }
  }

  async #load(
    { version, load }: Found<T>,
    isForced: boolean,
  ): Promise<PollResult<T> | 'incomplete' | 'none'> {
    const next = await this.#guard(load(this.#value, isForced))
    if (this.#isStopped) {
      return 'none'
    }
    if (next === 'incomplete') {
      return next
    }
    if (next.ok) {
      this.#choice.activated(version)
      this.#activate(next.value)
      return { ...next, mustReport: true }
    }
    const isNews = this.#choice.rejected(version, performance.now())
    return { ...next, mustReport: isForced || isNews }
  }

  #activate(fresh: T): void {
    const former = this.#value
    this.#value = fresh
    const errors: unknown[] = []
    for (const subscriber of this.#subscribers) {
      try {
        subscriber(fresh, former)
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length > 0) {
      throw errors[0]
    }
  }

  #guard<R>(loading: Promise<R>): Promise<R | typeof INTERNAL_ERROR> {
    return loading.catch((error: unknown) => {
      this.#options.onError(error)
      return INTERNAL_ERROR
    })
  }
}
