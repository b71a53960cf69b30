/**
 * The outcome of loading something that operators may change while the sidecar runs.
 *
 * @module
 */

/** A value that can be used, or every reason why there is none. Lines for a person, free of secrets. */
export type Loaded<T> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Reads the newest version, whole, and validates it. Does not reject. */
export type Load<T> = () => Promise<Loaded<T>>
