/**
 * Decides when a polled source is loaded, and what becomes of what was loaded.
 * In: a state and an observation. Out: the next state and the action. Pure, so that its cases are a table.
 */

/** How long a change may take, counted in polls. */
export interface ChangeLimits {
  /** A bad version is reported after so many polls with a change: a key may follow its certificate late. */
  readonly pairPolls: number
  /** A version that differs at each poll is loaded after so many. Not earlier: a part of a revocation list is valid. */
  readonly unstablePolls: number
  /** A rejected version is loaded again after so many: the cause may be ours, such as too many open files. */
  readonly retryPolls: number
}

/** For a source that shows complete versions only: each is loaded at once. */
export const ATOMIC: ChangeLimits = { pairPolls: 1, unstablePolls: 1, retryPolls: 1 }

export interface ChangeState {
  /** The version that became active or was rejected last. */
  readonly settled?: string | undefined
  /** The version that the previous poll found. */
  readonly seen?: string | undefined
  /** The version that was loaded last. */
  readonly read?: string | undefined
  /** Polls since the version differs from `settled`. */
  readonly changedPolls: number
  /** Polls since `settled` was rejected; undefined if it is active. */
  readonly rejectedPolls?: number | undefined
  /** Why the source cannot be observed. */
  readonly unavailable?: string | undefined
}

export type Observation =
  | { readonly kind: 'polled'; readonly version: string }
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** An operator wants it loaded, changed or not. */
  | { readonly kind: 'forced'; readonly version: string }
  | {
      readonly kind: 'loaded'
      readonly version: string
      readonly action: 'try' | 'load'
      readonly ok: boolean
      /** Whether the source still shows `version`. */
      readonly isUnchanged: boolean
    }

/**
 * `try`: load, and use the version only if it is good and did not change meanwhile. `load`: load, and use or report it.
 * `recover`: the source is available again, and shows the active version.
 */
export type ChangeAction = 'wait' | 'try' | 'load' | 'activate' | 'report' | 'recover'

export function nextChange(
  state: ChangeState,
  observation: Observation,
  limits: ChangeLimits,
): readonly [ChangeState, ChangeAction] {
  switch (observation.kind) {
    case 'polled':
      return polled(state, observation.version, limits)
    case 'unavailable': {
      const { reason } = observation
      return [{ ...state, unavailable: reason }, reason === state.unavailable ? 'wait' : 'report']
    }
    case 'forced':
      return [
        { ...state, seen: observation.version, read: observation.version, unavailable: undefined },
        'load',
      ]
    case 'loaded': {
      const { version, action, ok, isUnchanged } = observation
      if (action === 'try' && !(ok && isUnchanged)) return [state, 'wait']
      const settled = { settled: version, changedPolls: 0, rejectedPolls: ok ? undefined : 0 }
      return [{ ...state, ...settled }, ok ? 'activate' : 'report']
    }
  }
}

function polled(
  before: ChangeState,
  version: string,
  { pairPolls, unstablePolls, retryPolls }: ChangeLimits,
): readonly [ChangeState, ChangeAction] {
  const state = { ...before, seen: version, unavailable: undefined }
  if (version === before.settled) {
    const unchanged = { ...state, changedPolls: 0 }
    if (before.rejectedPolls === undefined) {
      return [unchanged, before.unavailable === undefined ? 'wait' : 'recover']
    }
    const rejectedPolls = before.rejectedPolls + 1
    return [{ ...unchanged, rejectedPolls }, rejectedPolls % retryPolls === 0 ? 'try' : 'wait']
  }
  const changed = { ...state, changedPolls: before.changedPolls + 1 }
  const isStable = version === before.seen
  if (changed.changedPolls >= (isStable ? pairPolls : unstablePolls)) {
    return [{ ...changed, read: version }, 'load']
  }
  return isStable && version !== before.read ? [{ ...changed, read: version }, 'try'] : [changed, 'wait']
}
