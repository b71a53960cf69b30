/**
 * Keeps a value current: polls a source (files, database, key set of an issuer), and loads its new versions.
 * The last good version stays active. Each failure is reported once. After each poll, `nextAction` decides.
 * `judge`: load the version, and activate or reject it. `try`: load the version, and activate it if good.
 *
 *   the poll finds                                    files    others
 *   the active version                                wait     wait
 *   a new version, for the first time                 wait     judge
 *   the same new version again                        try
 *   the same new version, `REPORT_POLLS` times        judge
 *   new versions, `UNSTABLE_POLLS` times              judge
 *   the rejected version, every `RETRY_POLLS`         try      try, at each poll
 *   any version, when an operator asks for a reload   judge    judge
 *   that the source is not available                  report, once for each reason
 */
import { type Loaded, notLoaded } from '../values/result.ts'

/** After fewer polls, a version may be incomplete: a key may follow its certificate late. */
const REPORT_POLLS = 5
/** A file that grows differs at each poll. An earlier load could activate a part of a revocation list. */
const UNSTABLE_POLLS = 50
/** The cause of a rejection may be temporary, such as too many open files. */
const RETRY_POLLS = 25

export interface ChangeState {
  /** The version that is active, or was rejected last; undefined before the first. */
  readonly judgedVersion: string | undefined
  /** Undefined if `judgedVersion` is active. */
  readonly pollsSinceRejected?: number | undefined
  /** What the last poll found instead of `judgedVersion`, and how many `polls` in a row found it. */
  readonly unjudged?: { readonly version: string; readonly polls: number; readonly pollsSinceChange: number }
  /** Why the source is not available. */
  readonly unavailable?: string
}

export function nextAction(
  before: ChangeState,
  observed: Loaded<Observed>,
  isForced: boolean,
  mayBeIncomplete = false,
): readonly [ChangeState, 'wait' | 'try' | 'judge' | 'report'] {
  if (!observed.ok) {
    const unavailable = observed.problems.join('\n')
    return [{ ...before, unavailable }, unavailable === before.unavailable ? 'wait' : 'report']
  }
  const { version } = observed.value
  const { judgedVersion, pollsSinceRejected, unjudged } = before
  if (isForced) return [{ judgedVersion, pollsSinceRejected }, 'judge']
  if (version === judgedVersion) {
    if (pollsSinceRejected === undefined) return [{ judgedVersion }, 'wait']
    const polls = pollsSinceRejected + 1
    const isDue = !mayBeIncomplete || polls % RETRY_POLLS === 0
    return [{ judgedVersion, pollsSinceRejected: polls }, isDue ? 'try' : 'wait']
  }
  const polls = version === unjudged?.version ? unjudged.polls + 1 : 1
  const pollsSinceChange = (unjudged?.pollsSinceChange ?? 0) + 1
  const changed = { judgedVersion, pollsSinceRejected, unjudged: { version, polls, pollsSinceChange } }
  const isDue = polls >= REPORT_POLLS || pollsSinceChange >= UNSTABLE_POLLS
  if (isDue || !mayBeIncomplete) return [changed, 'judge']
  return [changed, polls === 2 ? 'try' : 'wait']
}

export function afterJudgement(judgedVersion: string, isGood: boolean): ChangeState {
  return { judgedVersion, pollsSinceRejected: isGood ? undefined : 0 }
}

export const RELOAD_RESULTS = ['ok', 'failed'] as const

export type ReloadResult = (typeof RELOAD_RESULTS)[number]

interface Observed {
  /** A text that differs after every change of the source. */
  readonly version: string
}

interface ReloadableOptions<T, O extends Observed> {
  /** What the source has, or why the source is not available. */
  readonly observe: () => Promise<Loaded<O>>
  /** The result may be dropped. `active`: the active value. `isForced`: an operator asks for a reload. */
  readonly load: (active: T, observed: O, isForced: boolean) => Promise<Loaded<T>>
  /** The value until the first load. `version`: its version, if it is from the source already. */
  readonly initial: T
  readonly version?: string
  /** A version may be a half-written file. */
  readonly mayBeIncomplete?: boolean
  readonly pollMs: number
  /** The pause between polls while the source is not available, or its version is rejected. */
  readonly retryMs: number
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
  #state: ChangeState
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
    this.#state = { judgedVersion: options.version }
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
    const { observe, load, mayBeIncomplete, onActivated, onFailed } = this.#options
    const observed = await this.#guard(observe())
    if (this.#isStopped) return
    const [state, action] = nextAction(this.#state, observed, isForced, mayBeIncomplete)
    this.#state = state
    if (action === 'report' && !observed.ok) onFailed(observed.problems)
    if (action === 'wait' || !observed.ok) return

    const { version } = observed.value
    const next = await this.#guard(load(this.#value, observed.value, isForced))
    if (action === 'try') {
      // After a failed load or a changed version, the version stays unjudged, because it may be incomplete.
      const again = next.ok ? await this.#guard(observe()) : undefined
      if (!again?.ok || again.value.version !== version) return
    }
    if (this.#isStopped) return
    this.#state = afterJudgement(version, next.ok)
    if (!next.ok) return onFailed(next.problems)
    const former = this.#value
    this.#value = next.value
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
    return !this.#isFailing() && this.#state.unjudged === undefined
  }

  #isFailing(): boolean {
    const { unavailable, pollsSinceRejected } = this.#state
    return unavailable !== undefined || pollsSinceRejected !== undefined
  }

  #schedule(): void {
    clearTimeout(this.#timer)
    if (!this.#isStarted || this.#isStopped) return
    const { pollMs, retryMs } = this.#options
    this.#timer = setTimeout(() => this.refresh(), this.#isFailing() ? retryMs : pollMs)
    if (this.#state.judgedVersion !== undefined) this.#timer.unref()
  }
}
