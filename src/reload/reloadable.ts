/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 *
 *   the last poll has found                      active value             next poll   reported (`mustReport`)
 *   the version that is active                   this version             `pollMs`
 *   a new version that loads                     it, from now on          `pollMs`    yes
 *   a new version that may be incomplete         the last good one        `pollMs`
 *   a new version that is rejected               the last good one        `retryMs`   yes
 *   the version that is rejected                 the last good one        `retryMs`   if it loads, tried again after `rejectedMs`
 *   no source                                    the last good one        `retryMs`   once for each problem
 *
 * When an operator asks for a reload, the source is loaded at once, even if it is unchanged or incomplete. Each load is reported.
 */
import { type Loaded, loaded, notLoaded } from '../base/result.ts'

export const RELOAD_RESULTS = ['ok', 'failed'] as const
export type ReloadResult = (typeof RELOAD_RESULTS)[number]

/** What a poll finds. */
export interface Found<T> {
  /** A text that differs after every change of the source. */
  readonly version: string
  /** Loads this version, or a newer one. `incomplete`: another poll must find the version before it is loaded, or rejected. */
  readonly load: (active: T, isForced: boolean) => Promise<Loaded<T> | 'incomplete'>
}

/** The active value if it is that of the source, or why it is not. `mustReport`: see the table above. */
export type PollResult<T> = Loaded<T> & { readonly mustReport: boolean }

interface ReloadableOptions<T> {
  /** Returns what the source has, or why the source is not available. */
  readonly poll: () => Promise<Loaded<Found<T>>>
  /** The value until the first load. `version`: set if this value already comes from the source. */
  readonly initial: T
  readonly version?: string
  readonly pollMs: number
  /** The pause between polls while the source is not available, or its version is rejected. Default: `pollMs`. */
  readonly retryMs?: number
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
  #value: T
  /** The version of the active value. Undefined until a version has been loaded. */
  #activeVersion: string | undefined
  /** The version that was rejected after the last activation. A forced reload can reject the active version itself. */
  #rejectedVersion: string | undefined
  #retryAtMonotonicMs = 0 // for the rejected version
  /** Why the source is not available. */
  #unavailable: string | undefined
  #isStarted = false
  #isStopped = false
  #timer: NodeJS.Timeout | undefined
  #resolveLoaded: (first: Loaded<boolean>) => void = () => {}
  /** The next poll waits for this one. */
  #newestPoll: Promise<unknown> = Promise.resolve()
  /** Those that are queued but have not begun. They will find all changes made until now. */
  readonly #queued: { poll?: Promise<boolean> | undefined; reload?: Promise<boolean> | undefined } = {}

  constructor(options: ReloadableOptions<T>) {
    this.#options = options
    this.#value = options.initial
    this.#activeVersion = options.version
  }

  readonly current = (): T => this.#value

  /** Resolves with true once the value is current, with false if stopped earlier, or with the problems that end the start. */
  readonly whenLoaded = new Promise<Loaded<boolean>>((resolve) => {
    this.#resolveLoaded = resolve
  })

  /** Subscribers are called in the order of `subscribe`. An error of one fails the poll, after the others are called. */
  subscribe(subscriber: (fresh: T, former: T) => void): void {
    this.#subscribers.push(subscriber)
  }

  /** Begins to poll: at once if no version is active, and then keeps the process alive until one is. */
  start(): void {
    this.#isStarted = true
    if (this.#activeVersion === undefined) {
      this.refresh()
    } else {
      this.#schedule()
    }
  }

  /** Polls now. Resolves with whether the value is as new as this call. Concurrent calls share a poll. Never rejects. */
  refresh(): Promise<boolean> {
    return this.#queued.poll ?? this.#enqueue('poll')
  }

  /** Loads the source, even if it has not changed. Calls share a load that has not begun. Never rejects. */
  reload(): Promise<unknown> {
    return this.#queued.reload ?? this.#enqueue('reload')
  }

  /** Stops polling, and drops the result of a load in progress. The value stays usable. */
  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
    this.#resolveLoaded(loaded(false))
  }

  /** Resolves once the polls that were requested until now have ended. Never rejects. */
  readonly whenIdle = (): Promise<unknown> => this.#newestPoll

  #enqueue(kind: 'poll' | 'reload'): Promise<boolean> {
    const { onPolled, onError } = this.#options
    const done = this.#newestPoll.then(async () => {
      this.#queued[kind] = undefined
      clearTimeout(this.#timer)
      let result: PollResult<T> | undefined
      try {
        result = this.#isStopped ? undefined : await this.#poll(kind === 'reload')
        if (result !== undefined) {
          onPolled(result)
        }
      } catch (error) {
        onError(error)
      }
      if (result?.ok) {
        this.#resolveLoaded(loaded(true))
      } else if (result?.kind === 'permanent' && this.#activeVersion === undefined) {
        this.#resolveLoaded(result)
        this.stop()
      }
      this.#schedule()
      return result?.ok === true
    })
    this.#queued[kind] = done
    this.#newestPoll = done
    return done
  }

  /** Resolves with undefined if the source may be incomplete, if a rejected version must wait, or if stopped meanwhile. */
  async #poll(isForced: boolean): Promise<PollResult<T> | undefined> {
    const found = await this.#guard(this.#options.poll())
    if (this.#isStopped) {
      return undefined
    }
    const unavailable = found.ok ? undefined : found.problems.join('\n')
    const isKnown = unavailable === this.#unavailable
    this.#unavailable = unavailable
    if (!found.ok) {
      return { ...found, mustReport: !isKnown }
    }
    const { version, load } = found.value
    const isActive = version === this.#activeVersion && this.#rejectedVersion === undefined
    if (isActive && !isForced) {
      return { ...loaded(this.#value), mustReport: false }
    }
    const isRejected = version === this.#rejectedVersion
    if (!isRejected) {
      this.#retryAtMonotonicMs = 0
    }
    if (!isForced && performance.now() < this.#retryAtMonotonicMs) {
      return undefined
    }
    const next = await this.#guard(load(this.#value, isForced))
    if (this.#isStopped || next === 'incomplete') {
      return undefined
    }
    this.#retryAtMonotonicMs = performance.now() + (this.#options.rejectedMs ?? 0)
    if (next.ok) {
      this.#activate(next.value, version)
    } else {
      this.#rejectedVersion = version
    }
    return { ...next, mustReport: next.ok || isForced || !isRejected }
  }

  #activate(fresh: T, version: string): void {
    const former = this.#value
    this.#value = fresh
    this.#activeVersion = version
    this.#rejectedVersion = undefined
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

  #schedule(): void {
    clearTimeout(this.#timer)
    if (!this.#isStarted || this.#isStopped) {
      return
    }
    const { pollMs, retryMs = pollMs } = this.#options
    const isFailing = this.#rejectedVersion !== undefined || this.#unavailable !== undefined
    this.#timer = setTimeout(() => this.refresh(), isFailing ? retryMs : pollMs)
    if (this.#activeVersion !== undefined) {
      this.#timer.unref()
    }
  }
}
