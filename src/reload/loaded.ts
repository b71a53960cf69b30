/** The outcome of loading something that operators may change while the sidecar runs. */

/** A usable value, or every reason why there is none. Problems and warnings are lines without secrets. */
export type Loaded<T> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Reads and validates the newest version. Does not reject. */
export type Load<T> = () => Promise<Loaded<T>>

/** The label `result` of metrics. */
export const RELOAD_RESULTS = ['ok', 'failed'] as const

export type ReloadResult = (typeof RELOAD_RESULTS)[number]
