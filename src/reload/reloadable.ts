/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 * The last good version stays active. Each failure is reported once.
 *
 *   a poll finds                          the reloadable
 *   the active version                    waits
 *   a new version                         loads it, and activates or rejects it
 *   the rejected version again            loads it, and activates it if it is good
 *   that the source is not available      reports each reason once
 *
 * `polled-files.ts` loads some versions later, because a file may be half-written.
 * An operator can ask for a reload, which loads any version at once.
 */
import { type Loaded, notLoaded } from '../values/result.ts'

/** A judged version has been activated or rejected. */
interface PollState {
  /** The version that was judged last. Undefined before the first. */
  readonly judgedVersion: string | undefined
  readonly isRejected: boolean
  /** The version that the last poll found, and how many polls in a row found it since its judgement. */
  readonly found: string | undefined
  readonly polls: number
  /** How many polls in a row found other versions than the judged one. */
  readonly pollsUnjudged: number
  /** Why the source is not available. */
  readonly unavailable?: string
}

/**
 * `judge`: the version is loaded, and activated or rejected.
 * `try`: the version is loaded, and activated if it is good and still there. Otherwise nothing changes.
 */
export type Action = 'wait' | 'try' | 'judge'

/** Decides on a version that is not active. `wasRejected`: it is the version that was judged last. */
export type Policy = (state: PollState, wasRejected: boolean) => Action

const loadAtOnce: Policy = (_state, wasRejected) => (wasRejected ? 'try' : 'judge')

export function nextAction(
  before: PollState,
  observed: Loaded<Observed>,
  isForced: boolean,
  policy = loadAtOnce,
): readonly [PollState, Action | 'report'] {
  if (!observed.ok) {
    const unavailable = observed.problems.join('\n')
    return [{ ...before, unavailable }, unavailable === before.unavailable ? 'wait' : 'report']
  }
  const { judgedVersion, isRejected, found } = before
  const { version } = observed.value
  const polls = version === found ? before.polls + 1 : 1
  const wasJudged = version === judgedVersion
  const pollsUnjudged = wasJudged ? 0 : before.pollsUnjudged + 1
  const state = { judgedVersion, isRejected, found: version, polls, pollsUnjudged }
  if (isForced) return [state, 'judge']
  const isActive = wasJudged && !isRejected
  return [state, isActive ? 'wait' : policy(state, wasJudged)]
}

export function afterJudgement(judgedVersion: string | undefined, isGood: boolean): PollState {
  return { judgedVersion, isRejected: !isGood, found: judgedVersion, polls: 0, pollsUnjudged: 0 }
}

export const RELOAD_RESULTS = ['ok', 'failed'] as const

export type ReloadResult = (typeof RELOAD_RESULTS)[number]

interface Observed {
  /** A text that differs after every change of the source. */
  readonly version: string
}

interface ReloadableOptions<T, O extends Observed> {
  /** Returns what the source has, or why the source is not available. */
  readonly observe: () => Promise<Loaded<O>>
  /** The result may be dropped. `isForced`: an operator asks for a reload. */
  readonly load: (active: T, observed: O, isForced: boolean) => Promise<Loaded<T>>
  /** The value until the first load. `version`: its version, if it is from the source already. */
  readonly initial: T
  readonly version?: string
  /** Default: each version is loaded at once. */
  readonly policy?: Policy
  readonly pollMs: number
  /** The pause between polls while the source is not available, or its version is rejected. */
  readonly retryMs: number
  /** Makes the parts of a new version active that are not in its value. Called before the subscribers. */
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
  #state: PollState
  #isStarted = false
  #isStopped = false
  #timer: NodeJS.Timeout | undefined
  #settleLoaded: (isLoaded: boolean) => void = () => {}
  /** Each poll waits for the one before it. */
  #newestPoll: Promise<unknown> = Promise.resolve()
  /** The poll that has not begun. It sees all changes made before now. */
  #nextPoll: Promise<boolean> | undefined

  constructor(options: ReloadableOptions<T, O>) {
    this.#options = options
    this.#value = options.initial
    this.#state = afterJudgement(options.version, true)
  }

  readonly current = (): T => this.#value

  /** True once the value is current. False if stopped earlier. */
  readonly whenLoaded = new Promise<boolean>((resolve) => {
    this.#settleLoaded = resolve
  })

  subscribe(subscriber: Subscriber<T>): void {
    this.#subscribers.push(subscriber)
  }

  /** Polls at once if there is no version yet. Keeps the process alive until then. */
  start(): void {
    this.#isStarted = true
    if (this.#state.judgedVersion === undefined) void this.refresh()
    else this.#schedule()
  }

  /** Polls now. Resolves with whether the value is as new as this call. Calls share a poll. Never rejects. */
  refresh(): Promise<boolean> {
    this.#nextPoll ??= this.#enqueue(false)
    return this.#nextPoll
  }

  /** Loads, changed or not. Never rejects. */
  reload(): Promise<unknown> {
    return this.#enqueue(true)
  }

  /** The value stays. A load in progress has no effect. */
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
      try {
        if (!this.#isStopped) await this.#poll(isForced)
        if (!this.#isStopped) onPolled?.(this.#isCurrent())
      } catch (error) {
        onError(error)
      }
      this.#schedule()
      const isCurrent = !this.#isStopped && this.#isCurrent()
      if (isCurrent) this.#settleLoaded(true)
      return isCurrent
    })
    this.#newestPoll = done
    return done
  }

  async #poll(isForced: boolean): Promise<void> {
    const { observe, load, policy, activate, onActivated, onFailed } = this.#options
    const observed = await this.#guard(observe())
    if (this.#isStopped) return
    const [state, action] = nextAction(this.#state, observed, isForced, policy)
    this.#state = state
    if (action === 'report' && !observed.ok) onFailed(observed.problems)
    if (action === 'wait' || !observed.ok) return

    const { version } = observed.value
    const next = await this.#guard(load(this.#value, observed.value, isForced))
    if (action === 'try') {
      const again = next.ok ? await this.#guard(observe()) : undefined
      if (!again?.ok || again.value.version !== version) return
    }
    if (this.#isStopped) return
    this.#state = afterJudgement(version, next.ok)
    if (!next.ok) return onFailed(next.problems)
    const former = this.#value
    this.#value = next.value
    activate?.(next.value)
    // Subscribers come first: they drop what depends on the former version, even if the report fails.
    for (const subscriber of this.#subscribers) subscriber(next.value, former)
    onActivated?.(next.value, next.warnings)
  }

  #guard<R>(loading: Promise<Loaded<R>>): Promise<Loaded<R>> {
    return loading.catch((error: unknown) => {
      this.#options.onError(error)
      return INTERNAL_ERROR
    })
  }

  #isCurrent(): boolean {
    return !this.#isFailing() && this.#state.pollsUnjudged === 0
  }

  #isFailing(): boolean {
    return this.#state.unavailable !== undefined || this.#state.isRejected
  }

  #schedule(): void {
    clearTimeout(this.#timer)
    if (!this.#isStarted || this.#isStopped) return
    const { pollMs, retryMs } = this.#options
    this.#timer = setTimeout(() => this.refresh(), this.#isFailing() ? retryMs : pollMs)
    if (this.#state.judgedVersion !== undefined) this.#timer.unref()
  }
}
