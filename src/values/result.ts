/**
 * Results of functions that can fail without an exception: all have a member `ok`. A `reason` is a word that code
 * compares or counts; a `problem` is text for people, and holds no secret.
 */

/** A value, or the reason why there is none. */
export type Result<T, Reason extends string = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reason: Reason }

export const failed = (reason: string): Result<never> => ({ ok: false, reason })

/** What a text means, or its problem, which follows the name of the text and repeats nothing of it. */
export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problem: string }

export const invalid = (problem: string): Parsed<never> => ({ ok: false, problem })

/** What is loaded, or every problem that prevents it. */
export type Loaded<T, P = string> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly P[] }

export const loaded = <T>(value: T, warnings: readonly string[] = []) =>
  ({ ok: true, value, warnings }) as const

export const notLoaded = <P = string>(problems: readonly P[]) => ({ ok: false, problems }) as const

/** What a command read or did. `isUnusable` is false where its file, directory or database is good or may soon be. */
export type Done<T = undefined> = Loaded<T> & { readonly isUnusable?: boolean }

export const DONE: Done = loaded(undefined)

export const notDone = (isUnusable: boolean, problems: readonly string[]) =>
  ({ ok: false, isUnusable, problems }) as const
