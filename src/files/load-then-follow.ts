/**
 * Loads files for the first time, and follows them once everything else could be loaded, too.
 *
 * In: files or directories, and how to load them. Out: what is wrong with them, or how to begin to follow them. What
 * they look like is noted before they are read for the first time: a change from then on is not missed.
 *
 * @module
 */
import type { Loaded } from '../reload/loaded.ts'
import { versionOf } from './files-version.ts'
import { type Following, type FollowOptions, followFiles } from './follow-files.ts'

/** What is followed, who wants to know, and how it is loaded before that. */
export interface LoadThenFollowOptions<T, P> extends Omit<FollowOptions<T>, 'initial' | 'version'> {
  /** Loads for the first time; problems may be told in another form than in a log line. Does not reject. */
  readonly loadFirst: () => Promise<Loaded<T, P>>
}

/** What was loaded for the first time; nothing is followed before `follow` is called. */
export type FirstLoad<Followed, P> =
  | { readonly ok: true; readonly warnings: readonly string[]; readonly follow: () => Followed }
  | { readonly ok: false; readonly problems: readonly P[] }

/** Loads for the first time. Never rejects. */
export async function loadThenFollow<T, P>({
  loadFirst,
  ...options
}: LoadThenFollowOptions<T, P>): Promise<FirstLoad<Following<T>, P>> {
  const version = await versionOf(options.paths, options.isPart)
  const loaded = await loadFirst()
  if (!loaded.ok) return loaded
  const { value: initial, warnings } = loaded
  return { ok: true, warnings, follow: () => followFiles({ ...options, initial, version }) }
}
