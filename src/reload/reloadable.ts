/**
 * A value that is reloaded when its files change; only a valid new version replaces the active one.
 * Polls `stat`, which also sees renames, Kubernetes' `..data` swaps and changes on network file systems.
 */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from '../ops/log.ts'
import { errorCode, type Loaded } from './files.ts'

/** The label `result` of metrics. */
export const RELOAD_RESULTS = ['ok', 'failed'] as const

export type ReloadResult = (typeof RELOAD_RESULTS)[number]

export interface ReloadableOptions<T> {
  /** For log lines, such as `keys`. */
  readonly subject: string
  /** Files, or directories whose files count. */
  readonly paths: readonly string[]
  /** Which files of a directory count; default: all but dot files and `.tmp` files, which never count. */
  readonly includes?: (name: string) => boolean
  /** Must not reject the first time; later rejections are logged. */
  readonly load: () => Promise<Loaded<T>>
  readonly onChange?: (value: T) => void
  readonly onReload?: (result: ReloadResult) => void
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly pollMs?: number
}

export interface Reloadable<T> {
  current(): T
  /** Does not keep the process alive. */
  start(): void
  /** Loads the files now, changed or not. Never rejects. */
  reload(): Promise<void>
  stop(): void
}

/**
 * A version is loaded once two polls found the same state: a file may be half-written before. After this many polls
 * (1 s) with a change it is reported if it is bad: a key may follow its certificate late.
 */
const MAX_CHANGED_POLLS = 5

/** After this many polls (10 s) unstable files are loaded, too. Not earlier: a part of a revocation list is valid. */
const MAX_UNSTABLE_POLLS = 50

/** A rejected version is read again after this many polls (5 s): the cause may be ours, such as too many open files. */
const RETRY_POLLS = 25

export const MAX_LOGGED_PROBLEMS = 20

/** Never rejects. */
export async function createReloadable<T>(options: ReloadableOptions<T>): Promise<Loaded<Reloadable<T>>> {
  const { subject, load, onChange, onReload, log, pollMs = 200 } = options
  // Before the files are read: the next poll finds a change made since.
  let lastAttempted = await stateOf(options)
  const first = await load()
  if (!first.ok) return first

  let value = first.value
  /** The state that the previous poll found. */
  let seen = lastAttempted
  /** The state whose files were read last; `lastAttempted`: and became active or were reported. */
  let lastRead = lastAttempted
  /** Polls since the state differs from `lastAttempted`. */
  let changedPolls = 0
  /** Polls since `lastAttempted` was rejected; undefined if it is active. */
  let rejectedPolls: number | undefined
  let stopped = false
  let timer: NodeJS.Timeout | undefined
  let queue = Promise.resolve()

  const enqueue = (step: () => Promise<void>) => {
    queue = queue
      .then(() => (stopped ? undefined : step()))
      .catch((error: unknown) => log.error({ subject, err: error }, 'fault while reloading'))
    return queue
  }

  async function poll(): Promise<void> {
    const state = await stateOf(options)
    const isStable = state === seen
    seen = state
    if (state === lastAttempted) {
      changedPolls = 0
      if (rejectedPolls === undefined) return
      rejectedPolls += 1
      if (rejectedPolls % RETRY_POLLS === 0) await attempt(state, false)
      return
    }
    changedPolls += 1
    const isDue = changedPolls >= (isStable ? MAX_CHANGED_POLLS : MAX_UNSTABLE_POLLS)
    if (isDue || (isStable && state !== lastRead)) await attempt(state, isDue)
  }

  /** `isDue`: uses a good version even if the files changed while they were read, and reports a bad version. */
  async function attempt(state: string, isDue: boolean) {
    lastRead = state
    const loaded = await load().catch((error: unknown): Loaded<T> => {
      log.error({ subject, err: error }, 'fault while reloading')
      return { ok: false, problems: ['could not be loaded because of an internal error'] }
    })
    if (!isDue && (!loaded.ok || (await stateOf(options)) !== state)) return
    if (stopped) return
    lastAttempted = state
    changedPolls = 0
    rejectedPolls = loaded.ok ? undefined : 0
    if (!loaded.ok) {
      const { length } = loaded.problems
      const problems = loaded.problems.slice(0, MAX_LOGGED_PROBLEMS)
      log.error(
        { subject, problems, ...(length > problems.length && { problemCount: length }) },
        'new version rejected, the last good one stays active',
      )
      onReload?.('failed')
      return
    }
    value = loaded.value
    onChange?.(value)
    for (const warning of loaded.warnings) log.warn({ subject }, warning)
    log.info({ subject }, 'new version active')
    onReload?.('ok')
  }

  function start(): void {
    timer = setTimeout(() => void enqueue(poll).then(() => stopped || start()), pollMs)
    timer.unref()
  }

  const reloadable: Reloadable<T> = {
    current: () => value,
    start,
    reload: () => enqueue(async () => attempt(await stateOf(options), true)),
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
  return { ok: true, value: reloadable, warnings: first.warnings }
}

/** A text that differs after every change of the files or of the targets of symbolic links. Never rejects. */
async function stateOf({
  paths,
  includes = () => true,
}: Pick<ReloadableOptions<unknown>, 'paths' | 'includes'>): Promise<string> {
  const describe = async (path: string, listed: boolean): Promise<unknown> => {
    try {
      const stats = await stat(path, { bigint: true })
      // The status of a directory changes with files that do not count, such as locks.
      if (listed && stats.isDirectory()) {
        const names = (await readdir(path)).filter((name) => isVisible(name) && includes(name)).sort()
        return [names, await Promise.all(names.map((name) => describe(join(path, name), false)))]
      }
      return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    } catch (error) {
      return errorCode(error)
    }
  }
  return JSON.stringify(await Promise.all(paths.map((path) => describe(path, true))))
}

const isVisible = (name: string) => !name.startsWith('.') && !name.endsWith('.tmp')
