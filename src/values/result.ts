/** What functions return that can fail without an exception. No message repeats a value: it may be a misplaced secret. */

/** `E`: a word of a closed set, a public error, a refusal, or text that follows the name of its subject. */
export type Result<T, E = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: E }

export const failed = <const E>(error: E) => ({ ok: false, error }) as const

export const errorIn = <E>(result: Result<unknown, E>) => (result.ok ? undefined : result.error)

/** What was loaded from a source, such as the settings or a file, or every problem of the source. */
export type Loaded<T, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly P[] }

export const loaded = <T>(value: T, warnings: readonly string[] = []) =>
  ({ ok: true, value, warnings }) as const

export const notLoaded = <P = string>(problems: readonly P[]) => ({ ok: false, problems }) as const

/** What a command that lists or changes a source returns. A failure without `kind` is one of the source, such as a bad file. */
export type CommandResult<T = undefined> = Loaded<T> & { readonly kind?: 'notDone' }

/** A name is taken, for example, or a database is down. */
export const notDone = (problem: string) => ({ ...notLoaded([problem]), kind: 'notDone' }) as const
