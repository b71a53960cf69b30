/**
 * Keeps a value in force that is read from files while they change.
 *
 * In: files or directories, and how to load them. Out: the newest good version, within a second of its being
 * written, however that was done: rewritten in place, renamed over, the directory replaced, a Kubernetes volume
 * swapped, and whatever else is going on beside it. Always: a version is loaded whole, and, unless there is no end of
 * changes, only if it did not change meanwhile; one that cannot be used is reported and counted once, when it has
 * stood still, and the last good one stays. Nothing here throws or keeps the process alive.
 *
 * Directories are watched for speed. A slow look at the files is the net under it, since watches get lost: with
 * the directory, on network file systems, at the machine's limit.
 *
 * @module
 */
import { basename, resolve } from 'node:path'
import type { Logger } from '../ops/log.ts'
import type { Load, Loaded } from '../reload/loaded.ts'
import { createDirectoryWatch, type Watch } from './directory-watch.ts'
import {
  type FilesVersion,
  type IsPart,
  isReplaced,
  isVersioned,
  oldestChange,
  versionOf,
} from './files-version.ts'

/** What became of a version: in force, or turned down in favour of the last good one. */
export const RELOAD_RESULTS = ['ok', 'failed'] as const

/** One of the results; the label `result` of `auth_sidecar_reloads_total`. */
export type ReloadResult = (typeof RELOAD_RESULTS)[number]

/** What is followed, and who wants to know. */
export interface FollowOptions<T> {
  /** What the files hold, in one word for log lines: `keys`. */
  readonly subject: string
  /** Files and directories. Of a directory, the files in it count; those of directories below it do not. */
  readonly paths: readonly string[]
  /** The value in force at the beginning. */
  readonly initial: T
  /** What the files looked like before the initial value was loaded: a change since then is not missed. */
  readonly version: FilesVersion
  readonly load: Load<T>
  /** Called right after another value has come into force. */
  readonly onChange?: (value: T) => void
  /** `seconds`: from the oldest change that was not in force yet to its being in force; absent when no change was the reason. */
  readonly onReload?: (result: ReloadResult, seconds?: number) => void
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Default: `fs.watch`. */
  readonly watch?: Watch
  /** Milliseconds between two looks when no watch tells of a change; default 250. */
  readonly pollMs?: number
  /** Which files of a directory count; default: all but dot files and half-written replacements. */
  readonly isPart?: IsPart
  /** For how many milliseconds files must stand still before they are read that may be half-written; default 150. */
  readonly settleMs?: number
  /** After how many milliseconds files are read that do not stand still; default 600. */
  readonly patienceMs?: number
}

/** A value that follows its files. */
export interface Following<T> {
  /** The value in force. */
  current(): T
  /** Loads the files even if they look unchanged; resolves when that has been done. Never rejects. */
  refresh(): Promise<void>
  /** Nothing changes any more from now on. */
  stop(): void
}

/** Watches may tell of every write of a long one; looking more often than this, in milliseconds, gains nothing. */
const LOOK_MS = 25

/** A broken list of thousands is no log line. */
const MOST_PROBLEMS_LOGGED = 20

/** Begins to follow. */
export function followFiles<T>(options: FollowOptions<T>): Following<T> {
  const { subject, load, onChange, onReload, log, now } = options
  const { pollMs = 250, settleMs = 150, patienceMs = 600, isPart } = options
  const paths = options.paths.map((path) => resolve(path))
  const names = new Set(paths.map((path) => basename(path)))
  let value = options.initial
  /** The version that `value` was loaded from, or that was turned down in its favour. */
  let judged = options.version
  /** The version last seen, since when, and whether it was tried before it had stood still. */
  let seen = judged.id
  let stillSince = Number.NEGATIVE_INFINITY
  let tried = false
  /** When the first change after `judged` was seen, and when it was made. */
  let moving: { readonly since: number; readonly changedAt: number } | undefined
  let forced: (() => void)[] = []
  let stopped = false

  const watch = createDirectoryWatch({
    // Of the directory around a file, only the file's own name and the links of a Kubernetes volume matter.
    onEvent: (directory, name) => {
      const followed = paths.includes(directory) ? name === null || isVersioned(name, isPart) : false
      if (followed || name === null || names.has(name) || name.startsWith('..')) lookWithin(LOOK_MS)
    },
    onFault: (cause) =>
      log.warn({ subject, err: cause }, 'changes of files cannot be watched, so they are looked for'),
    ...(options.watch && { watch: options.watch }),
  })

  // One look at a time. The next one is due at `nextAt`, or as soon as the one under way is over.
  let timer: NodeJS.Timeout | undefined
  let nextAt = Number.POSITIVE_INFINITY
  let looking = false
  watch.arm(options.version.directories)
  lookWithin(0)

  return {
    current: () => value,
    refresh: () =>
      new Promise((done) => {
        if (stopped) return done()
        forced.push(done)
        lookWithin(0)
      }),
    stop() {
      stopped = true
      clearTimeout(timer)
      watch.close()
      for (const done of forced) done()
    },
  }

  function lookWithin(ms: number): void {
    const at = performance.now() + ms
    if (stopped || at >= nextAt) return
    nextAt = at
    if (looking) return
    clearTimeout(timer)
    timer = setTimeout(() => void lookAndGoOn(), ms)
    timer.unref()
  }

  async function lookAndGoOn(): Promise<void> {
    looking = true
    nextAt = Number.POSITIVE_INFINITY
    const next = await look()
    looking = false
    const asked = nextAt - performance.now()
    nextAt = Number.POSITIVE_INFINITY
    lookWithin(Math.max(0, Math.min(next, asked)))
  }

  /** Looks at the files, and loads them if it is time to. Returns in how many milliseconds to look again. */
  async function look(): Promise<number> {
    const found = await versionOf(paths, isPart)
    watch.arm(found.directories)
    const at = performance.now()
    if (found.id !== seen) {
      seen = found.id
      stillSince = at
      tried = false
    }
    const changed = found.id !== judged.id
    if (changed) moving ??= { since: at, changedAt: oldestChange(judged, found) }
    else moving = undefined
    if (stopped || (!changed && forced.length === 0)) return pollMs
    // What is being written may be good YAML already, and yet only half of what it is going to be.
    const still = at - stillSince
    const settled = still >= settleMs
    const overdue = moving !== undefined && at - moving.since >= patienceMs
    // Somebody may have removed a file and be writing it anew, which a rename is told from by a moment of silence.
    const whole = still >= Math.min(LOOK_MS, settleMs) && isReplaced(judged, found)
    const early = !tried && (whole || forced.length > 0)
    if (!settled && !overdue && !early) return Math.min(LOOK_MS, settleMs)

    tried = true
    const waiting = forced
    forced = []
    const loaded = await loadReadable(found)
    const after = await versionOf(paths, isPart)
    if (stopped) {
      for (const done of waiting) done()
      return pollMs
    }
    const isMoving = after.id !== found.id
    if (!overdue && (isMoving || !(loaded.ok || settled))) {
      forced = [...waiting, ...forced]
      return isMoving ? 0 : Math.min(LOOK_MS, settleMs)
    }
    judged = found
    try {
      judge(loaded, moving?.changedAt)
    } catch (error) {
      log.error({ subject, err: error }, 'fault while a new version came into force')
    }
    moving = undefined
    for (const done of waiting) done()
    return 0
  }

  async function loadReadable({ unreadable }: FilesVersion): Promise<Loaded<T>> {
    if (unreadable.length > 0)
      return { ok: false, problems: unreadable.map((path) => `${path}: is not a file`) }
    try {
      return await load()
    } catch (error) {
      log.error({ subject, err: error }, 'fault while files were loaded')
      return { ok: false, problems: ['could not be loaded for a fault of the program'] }
    }
  }

  function judge(loaded: Loaded<T>, changedAt: number | undefined): void {
    if (!loaded.ok) {
      const { length } = loaded.problems
      const problems = loaded.problems.slice(0, MOST_PROBLEMS_LOGGED)
      log.error(
        { subject, problems, ...(length > problems.length && { problemsInAll: length }) },
        'a new version cannot be used, the last good one stays in force',
      )
      onReload?.('failed')
      return
    }
    value = loaded.value
    onChange?.(value)
    const seconds = changedAt === undefined ? undefined : Math.max(0, (now() - changedAt) / 1000)
    for (const warning of loaded.warnings) log.warn({ subject }, warning)
    log.info({ subject, ...(seconds !== undefined && { seconds }) }, 'a new version is in force')
    onReload?.('ok', seconds)
  }
}
