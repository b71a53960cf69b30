/**
 * How a function says that it could not do its work. No message quotes a value: it may be a secret.
 *
 *   Result              the calling code handles both, such as a refused token
 *   Loaded              a source could not be loaded: every problem of it
 *   NotDone             a command ends with exit code 1; with `UsageFailure` of `cli/`, with 2
 *   any other exception an internal error, unless its class is expected. Of a request: a 500 and a log line
 */

/** `E`: a word of a closed set, a public error, a refusal, or text that follows the name of its subject. */
export type Result<T, E = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: E }

export const ok = <T>(value: T) => ({ ok: true, value }) as const

export const failed = <const E>(error: E) => ({ ok: false, error }) as const

export const errorIn = <E>(result: Result<unknown, E>) => (result.ok ? undefined : result.error)

/**
 * What was loaded from a source, such as the settings or a file, or every problem of the source.
 * A problem is a text that names the file (`credentials.yaml:3:5: …`), or that follows the name
 * of its subject, or a `Problem` with the path of a setting. `kind` of a failure, if callers must know more:
 *   missing    there is no such file
 *   permanent  only an operator can mend it. Before the first version, such a failure ends polling
 *   outOfFiles the process may open no more files: nothing is known about the source
 */
export type Loaded<T = undefined, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | NotLoaded<P>
interface NotLoaded<P> {
  readonly ok: false
  readonly problems: readonly P[]
  readonly kind?: FailureKind
}
type FailureKind = 'missing' | 'permanent' | 'outOfFiles'

export const loaded = <T>(value: T, warnings: readonly string[] = []) =>
  ({ ok: true, value, warnings }) as const

export function notLoaded<P = string>(problems: readonly P[], kind?: FailureKind): NotLoaded<P> {
  return kind === undefined ? { ok: false, problems } : { ok: false, problems, kind }
}

/**
 * Why a command cannot be done although its source can be used, in plain words: a name is
 * taken, or a database is down.
 */
export class NotDone extends Error {}
