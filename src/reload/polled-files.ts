/**
 * A value that is loaded from files and loaded again when they change.
 * Polls `stat`, which also sees renames, Kubernetes' `..data` swaps and changes on network file systems.
 */
import { access, constants, readdir, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Problem } from '../config/problem.ts'
import type { Logger } from '../ops/log.ts'
import { errorCode, type Loaded } from './files.ts'
import { type ChangeLimits, MAX_LOGGED_PROBLEMS, Reloadable, type ReloadResult } from './reloadable.ts'

/** Names files. */
export interface FilePaths {
  /** Files, or directories whose files count. */
  readonly paths: readonly string[]
  /** Which files of a directory count; default: all but dot files and `.tmp` files, which never count. */
  readonly includes?: ((name: string) => boolean) | undefined
}

export interface PolledFilesOptions<T> extends FilePaths {
  /** For log lines, such as `keys`. */
  readonly subject: string
  /** `active`: the active value, except the first time. Must not reject then; later rejections are logged. */
  readonly load: (active?: T) => Promise<Loaded<T, Problem>>
  readonly onChange?: (fresh: T, former: T) => void
  readonly onReload?: (result: ReloadResult) => void
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly pollMs?: number
}

/** A file may be half-written. At a poll each 200 ms: 1 s, 10 s and 5 s. */
export const FILE_LIMITS: ChangeLimits = { reportPolls: 5, unstablePolls: 50, retryPolls: 25 }

/** Loads the files; they are polled from `start` on. Never rejects. */
export async function openPolledFiles<T>(
  options: PolledFilesOptions<T>,
): Promise<Loaded<Reloadable<T>, Problem>> {
  const { subject, onChange, onReload, log, pollMs = 200 } = options
  // Before the files are read: the next poll finds a change made since.
  const version = await versionOf(options)
  const first = await loadWithWarnings(options)
  if (!first.ok) return first
  const reloadable: Reloadable<T> = new Reloadable({
    source: {
      observe: async () => ({ ok: true, value: await versionOf(options), warnings: [] }),
      async load() {
        const loaded = await loadWithWarnings(options, reloadable.current())
        if (loaded.ok) return loaded
        return { ok: false, problems: loaded.problems.map(({ path, message }) => `${path}: ${message}`) }
      },
    },
    initial: first.value,
    version,
    limits: FILE_LIMITS,
    pollMs,
    retryMs: pollMs,
    onActive(value, warnings, former) {
      onChange?.(value, former)
      for (const warning of warnings) log.warn({ subject }, warning)
      log.info({ subject }, 'new version active')
      onReload?.('ok')
    },
    onFailed(all) {
      const problems = all.slice(0, MAX_LOGGED_PROBLEMS)
      const fields = { subject, problems, ...(all.length > problems.length && { problemCount: all.length }) }
      log.error(fields, 'new version rejected, the last good one stays active')
      onReload?.('failed')
    },
    onFault: (error) => log.error({ subject, err: error }, 'fault while reloading'),
  })
  return { ok: true, value: reloadable, warnings: first.warnings }
}

/** A text that differs after every change of the files or of the targets of symbolic links. Never rejects. */
async function versionOf({ paths, includes }: FilePaths): Promise<string> {
  const describe = async (path: string, listed: boolean): Promise<unknown> => {
    try {
      const stats = await stat(path, { bigint: true })
      // The status of a directory changes with files that do not count, such as locks.
      if (listed && stats.isDirectory()) {
        const names = await namesIn(path, includes)
        return [names, await Promise.all(names.map((name) => describe(join(path, name), false)))]
      }
      return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    } catch (error) {
      return errorCode(error)
    }
  }
  return JSON.stringify(await Promise.all(paths.map((path) => describe(path, true))))
}

async function loadWithWarnings<T>(options: PolledFilesOptions<T>, active?: T): Promise<Loaded<T, Problem>> {
  const loaded = await options.load(active)
  if (!loaded.ok) return loaded
  return { ...loaded, warnings: [...loaded.warnings, ...(await writeWarnings(options).catch(() => []))] }
}

/** Names what decides on access and every user of the machine can write. */
async function writeWarnings({ paths, includes }: FilePaths): Promise<string[]> {
  const writable = new Set<string>()
  const check = async (path: string, isSafe: number) => {
    if (((await stat(path)).mode & (0o002 | isSafe)) !== 0o002) return
    // Volumes of Kubernetes have such modes, and are mounted read-only.
    const isReadOnly = await access(path, constants.W_OK).catch(() => true)
    if (isReadOnly !== true) writable.add(path)
  }
  for (const path of paths) {
    await check(path, 0)
    const isDirectory = (await stat(path)).isDirectory()
    for (const name of isDirectory ? await namesIn(path, includes) : []) await check(join(path, name), 0)
    // Where the sticky bit is set, others can replace nothing.
    if (!isDirectory) await check(dirname(path), 0o1000)
  }
  return [...writable].map((path) => `${path} can be written by every user of this machine`)
}

/** The files of a directory that count. */
async function namesIn(path: string, includes: FilePaths['includes'] = () => true): Promise<string[]> {
  const isVisible = (name: string) => !name.startsWith('.') && !name.endsWith('.tmp')
  return (await readdir(path)).filter((name) => isVisible(name) && includes(name)).sort()
}
