/**
 * Keeps a value current: polls a source, loads its new versions, keeps the last good one, and reports each fault once.
 * Files, the credentials database and the key sets of issuers are such sources; `change-detector.ts` decides.
 */
import { type ChangeLimits, type ChangeState, nextChange, type Observation } from './change-detector.ts'
import type { Loaded } from './files.ts'

/** The label `result` of metrics. */
export const RELOAD_RESULTS = ['ok', 'failed'] as const

export type ReloadResult = (typeof RELOAD_RESULTS)[number]

/** What is polled. Neither function is called while the other, or itself, is in progress. */
export interface Source<T> {
  /** Finds a text that differs after every change, or why the source is not available. */
  observe(): Promise<Loaded<string>>
  /** Loads the version that is there now. */
  load(): Promise<Loaded<T>>
}

export interface ReloadableOptions<T> {
  readonly source: Source<T>
  /** The value until the first version, or the one that was loaded already; then `version` is its version. */
  readonly initial: T
  readonly version?: string
  readonly limits: ChangeLimits
  readonly pollMs: number
  /** Between polls while the source is not available, or its version is rejected. */
  readonly retryMs: number
  /** A new version is active. */
  readonly onActive: (value: T, warnings: readonly string[], former: T) => void
  /** A version was rejected, or the source is not available: once for each version or reason. */
  readonly onFailed: (problems: readonly string[]) => void
  /** The source is available again, and its version is the active one. */
  readonly onRecovered?: () => void
  /** After each poll. `isCurrent`: the source is available, and its version is the active one. */
  readonly onPolled?: (isCurrent: boolean) => void
  /** `observe`, `load` or a callback has thrown. */
  readonly onFault: (error: unknown) => void
}

export interface Reloadable<T> {
  current(): T
  /** Polls at once if there is no version yet. Keeps the process alive until then. */
  start(): void
  /** Polls now. Resolves with whether the value is as new as this call. Calls share a poll. Never rejects. */
  refresh(): Promise<boolean>
  /** Loads the source now, changed or not. Never rejects. */
  reload(): Promise<void>
  /** The value stays. A load in progress has no effect. */
  stop(): void
}

const FAULT: Loaded<never> = { ok: false, problems: ['could not be loaded because of an internal error'] }

export function createReloadable<T>(options: ReloadableOptions<T>): Reloadable<T> {
  const { source, limits, pollMs, retryMs, onActive, onFailed, onRecovered, onPolled, onFault } = options
  const { version } = options
  let value = options.initial
  let state: ChangeState = { settled: version, seen: version, read: version, changedPolls: 0 }
  let isStarted = false
  let isStopped = false
  let timer: NodeJS.Timeout | undefined
  let queue: Promise<unknown> = Promise.resolve()
  /** The poll that has not begun: it sees all changes made before now. */
  let nextPoll: Promise<boolean> | undefined

  const isCurrent = () =>
    state.unavailable === undefined && state.rejectedPolls === undefined && state.seen === state.settled

  const guarded = <R>(call: () => Promise<Loaded<R>>): Promise<Loaded<R>> =>
    call().catch((error: unknown) => {
      onFault(error)
      return FAULT
    })

  function enqueue(kind: 'polled' | 'forced'): Promise<boolean> {
    const ran = queue.then(async () => {
      if (kind === 'polled') nextPoll = undefined
      clearTimeout(timer)
      try {
        if (!isStopped) await run(kind)
        if (!isStopped) onPolled?.(isCurrent())
      } catch (error) {
        onFault(error)
      }
      schedule()
      return !isStopped && isCurrent()
    })
    queue = ran
    return ran
  }

  async function run(kind: 'polled' | 'forced'): Promise<void> {
    const observed = await guarded(source.observe)
    if (isStopped) return
    if (!observed.ok) {
      const { problems } = observed
      if (advance({ kind: 'unavailable', reason: problems.join('\n') }) === 'report') onFailed(problems)
      return
    }
    const version = observed.value
    const action = advance({ kind, version })
    if (action === 'recover') onRecovered?.()
    if (action !== 'try' && action !== 'load') return
    const loaded = await guarded(source.load)
    const isUnchanged = action === 'load' || (loaded.ok && (await showsStill(version)))
    if (isStopped) return
    const outcome = advance({ kind: 'loaded', version, action, ok: loaded.ok, isUnchanged })
    if (loaded.ok && outcome === 'activate') {
      const former = value
      value = loaded.value
      onActive(value, loaded.warnings, former)
    } else if (!loaded.ok && outcome === 'report') onFailed(loaded.problems)
  }

  function advance(observation: Observation) {
    const [next, action] = nextChange(state, observation, limits)
    state = next
    return action
  }

  async function showsStill(version: string): Promise<boolean> {
    const observed = await guarded(source.observe)
    return observed.ok && observed.value === version
  }

  function schedule(): void {
    clearTimeout(timer)
    if (!isStarted || isStopped) return
    const isFailing = state.unavailable !== undefined || state.rejectedPolls !== undefined
    timer = setTimeout(refresh, isFailing ? retryMs : pollMs)
    if (state.settled !== undefined) timer.unref()
  }

  function refresh(): Promise<boolean> {
    nextPoll ??= enqueue('polled')
    return nextPoll
  }

  return {
    current: () => value,
    start() {
      isStarted = true
      if (state.settled === undefined) void refresh()
      else schedule()
    },
    refresh,
    async reload() {
      await enqueue('forced')
    },
    stop() {
      isStopped = true
      clearTimeout(timer)
    },
  }
}
