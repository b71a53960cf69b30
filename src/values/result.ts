/**
 * What a function returns that can fail without an exception: a value, or one error; of a source such as the settings or
 * a file, every problem. No message repeats a value, which may be a misplaced secret.
 */
import { printable } from './names.ts'

/** `E`: a word of a closed set, text for people that follows the name of what it is about, a public error or a refusal. */
export type Result<T, E = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: E }

export const failed = <const E>(error: E) => ({ ok: false, error }) as const

export const errorIn = <E>(result: Result<unknown, E>) => (result.ok ? undefined : result.error)

/** What is loaded, or every problem that prevents it. */
export type Loaded<T, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly P[] }

export const loaded = <T>(value: T, warnings: readonly string[] = []) =>
  ({ ok: true, value, warnings }) as const

export const notLoaded = <P = string>(problems: readonly P[]) => ({ ok: false, problems }) as const

/** What a command read or did. `isUsable`: not done, but its file, directory or database is good or may soon be. */
export type Done<T = undefined> = Loaded<T> & { readonly isUsable?: true }

export const DONE: Done = loaded(undefined)

export const notDone = (problem: string) => ({ ok: false, isUsable: true, problems: [problem] }) as const

export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a mistake of a complete source. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where no source gave a value. */
  readonly origin: string
}

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
