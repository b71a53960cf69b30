/** The outcome of loading something that operators may change while the sidecar runs. */

/** A usable value, or every reason why there is none. Problems and warnings are lines for a person, free of secrets. */
export type Loaded<T, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly P[] }

/** Reads the newest version whole and validates it. Does not reject. */
export type Load<T> = () => Promise<Loaded<T>>
