/**
 * Problems of the configuration, and results that hold problems. A problem names the setting, its requirement and the
 * location of the value. It never repeats the value, which may be a misplaced secret.
 */

export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a mistake of a complete source. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where no source gave a value. */
  readonly origin: string
}

/** A value, or the one reason why there is none. Every result has a member `ok`, and none is a string in place of a value. */
export type Result<T, Reason = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reason: Reason }

export const failed = (reason: string): Result<never> => ({ ok: false, reason })

/** What is loaded, or every problem that prevents it. Problems and warnings are lines without secrets. */
export type Loaded<T, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly P[] }

export const loaded = <T>(value: T, warnings: readonly string[] = []) =>
  ({ ok: true, value, warnings }) as const

export const notLoaded = (problems: readonly string[]) => ({ ok: false, problems }) as const

/** A command changed nothing. With `isUnusable`, what it would change is missing, unreachable or invalid. */
export interface NotDone {
  readonly ok: false
  readonly isUnusable: boolean
  readonly problems: readonly string[]
}

export function notDone(isUnusable: boolean, problems: readonly string[]): NotDone {
  return { ok: false, isUnusable, problems }
}

/** `path` is the setting that names the file. */
export const fileProblem = (path: string, message: string): Problem => ({ path, message, origin: 'default' })

const MAX_PRINTED = 20

export function formatProblems(problems: readonly Problem[]): string {
  const lines = problems
    .slice(0, MAX_PRINTED)
    .map(({ path, message, origin }) =>
      printable(`  ${path === '' ? '' : `${path}: `}${message}${origin === 'default' ? '' : ` (${origin})`}`),
    )
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  const more = problems.length > MAX_PRINTED ? [`  and ${problems.length - MAX_PRINTED} more`] : []
  return [`the configuration has ${count}:`, ...lines, ...more].join('\n')
}

/** Escapes what controls a terminal, breaks a line or reverses text (CVE-2021-42574). */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
