/**
 * Loads values from files, and loads them again when they have changed and are complete:
 * good ones after 0.2 to 0.7 s. Bad ones are reported after 1.3 s.
 * Polls `stat`, which also detects renames, Kubernetes' `..data` swaps and changes on network disks.
 * While nothing changes, `FileWatch` does, and the polls are rare.
 */
import { access, constants, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isOutOfFiles } from '../base/errors.ts'
import { type Logger, loggedItems } from '../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { errorCode, visibleNames } from '../files/files.ts'
import { FileWatch } from './file-watch.ts'
import { type Found, Reloadable, type ReloadResult } from './reloadable.ts'
import { choosePolicy, countPoll, loadCounts, type PollHistory } from './settling.ts'

type Includes = (name: string) => boolean
/** `path`: the setting. `message`: what is wrong with its file. */
type FileProblem = Readonly<Record<'path' | 'message', string>>

interface PolledFilesOptions<T> {
  readonly subject: string
  /** The polled files, and directories whose files are polled. */
  readonly paths: readonly string[]
  /** Selects the polled files of a directory. Dot files and `.tmp` files are never polled. */
  readonly includes?: Includes | undefined
  /** `active`: undefined in the first load, which must not throw. Errors of later loads are logged. */
  readonly load: (active?: T) => Promise<Loaded<T, FileProblem>>
  readonly onReload: (result: ReloadResult) => void
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
}

/**
 * A good version is active after this time and one `SETTLING_MS` at most, within the second that is promised.
 */
const FILE_POLL_MS = 500
/** If the watch misses a change all the same. */
const WATCHED_POLL_MS = 10_000
const SETTLING_MS = 200
/** The cause of a failure may be temporary, such as missing rights. */
const REJECTED_MS = 5000

const includesAll: Includes = () => true

/** Loads the files. Polling begins only with `start`. Never rejects. */
export async function openPolledFiles<T>(
  options: PolledFilesOptions<T>,
): Promise<Loaded<Reloadable<T>, FileProblem>> {
  const { subject, paths, onReload, log } = options
  const includes = options.includes ?? includesAll
  async function loadFiles(active?: T): Promise<Loaded<T, FileProblem>> {
    const next = await options.load(active)
    if (!next.ok) {
      return next
    }
    const warnings = await writeWarnings(paths, includes).catch(() => [])
    return loaded(next.value, [...next.warnings, ...warnings])
  }

  // The version is read before the files, so that the next poll finds a change made during the load.
  const before = await versionOf(paths, includes)
  const version = before?.text ?? ''
  let files = before?.files ?? []
  const first = await loadFiles()
  if (!first.ok) {
    return first
  }
  let history: PollHistory = { version, polls: 0, unsettledPolls: 0 }

  const watch = new FileWatch()

  async function poll(): Promise<Loaded<Found<T>>> {
    const polled = files
    // Before the poll waits for anything: so the files of all sources, which are polled at the same moments,
    // are also watched from the same moments on.
    const wereWatched = watch.watch(polled)
    const found = await versionOf(paths, includes)
    if (found === undefined) {
      return loaded({ version: history.version, load })
    }
    history = countPoll(history, found.text)
    files = found.files
    // A watch that began with this poll may have missed a change after the version was read.
    const isWatched = wereWatched && files.join('\0') === polled.join('\0')
    return loaded({ version: history.version, load, isWatched })
  }

  async function load(active: T, isForced: boolean): Promise<Loaded<T> | 'incomplete'> {
    const before = history
    const policy = choosePolicy(before, isForced)
    if (policy === 'wait') {
      return 'incomplete'
    }
    history = { ...before, unsettledPolls: 0 } // also if the load throws
    const next = await loadFiles(active)
    const isUnknown = !next.ok && next.kind === 'outOfFiles'
    if (isUnknown && !isForced) {
      history = before
      return 'incomplete'
    }
    const isUnchanged = async () => (await versionOf(paths, includes))?.text === before.version
    if (!(await loadCounts(policy, next.ok, isUnchanged))) {
      history = before
      return 'incomplete'
    }
    return next.ok ? next : notLoaded(next.problems.map(({ path, message }) => `${path}: ${message}`))
  }

  const reloadable = new Reloadable<T>({
    poll,
    initial: first.value,
    version,
    watch,
    pollMs: FILE_POLL_MS,
    watchedMs: WATCHED_POLL_MS,
    settlingMs: SETTLING_MS,
    rejectedMs: REJECTED_MS,
    onPolled(polled) {
      if (!polled.mustReport) {
        return
      }
      if (polled.ok) {
        for (const warning of polled.warnings) {
          log.warn({ subject }, warning)
        }
        log.info({ subject }, 'new version active')
      } else {
        const problems = { problems: loggedItems(polled.problems), problemCount: polled.problems.length }
        log.error({ subject, ...problems }, 'new version rejected, the last good one stays active')
      }
      onReload(polled.ok ? 'ok' : 'failed')
    },
    onError: (error) => log.error({ subject, err: error }, 'error while reloading'),
  })
  return loaded(reloadable, first.warnings)
}

interface FilesVersion {
  /** Differs after every change of the files or of the targets of symbolic links. */
  readonly text: string
  /** What was found: the paths, and the files of those that are directories. */
  readonly files: readonly string[]
}

/**
 * Undefined if the process may open no more files: then a directory cannot be read, and may be unchanged.
 * Never rejects.
 */
async function versionOf(paths: readonly string[], includes: Includes): Promise<FilesVersion | undefined> {
  let isOutOfAny = false
  const files = [...paths]
  const describe = async (path: string, isListed: boolean): Promise<unknown> => {
    try {
      const stats = await stat(path, { bigint: true })
      // The directory's own status also changes with files that are not polled, such as locks.
      if (isListed && stats.isDirectory()) {
        const names = (await visibleNames(path)).filter(includes)
        const listed = names.map((name) => join(path, name))
        files.push(...listed)
        return [names, await Promise.all(listed.map((file) => describe(file, false)))]
      }
      return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    } catch (error) {
      isOutOfAny ||= isOutOfFiles(error)
      return errorCode(error)
    }
  }
  const described = await Promise.all(paths.map((path) => describe(path, true)))
  return isOutOfAny ? undefined : { text: JSON.stringify(described), files }
}

const WRITABLE_BY_OTHERS = 0o002
const STICKY = 0o1000

/** Whether other users cannot replace the files of the directory, even if they can write to it. */
async function isSticky(directory: string): Promise<boolean> {
  const { mode } = await stat(directory)
  return (mode & STICKY) !== 0
}

async function writeWarnings(paths: readonly string[], includes: Includes): Promise<string[]> {
  const writable = new Set<string>()
  const noteIfWritable = async (path: string) => {
    const { mode } = await stat(path)
    if ((mode & WRITABLE_BY_OTHERS) === 0) {
      return
    }
    // Volumes of Kubernetes have such modes, but are mounted read-only.
    const failure: unknown = await access(path, constants.W_OK).catch((error) => error)
    if (failure === undefined) {
      writable.add(path)
    }
  }
  for (const path of paths) {
    await noteIfWritable(path)
    const isDirectory = (await stat(path)).isDirectory()
    if (isDirectory) {
      for (const name of (await visibleNames(path)).filter(includes)) {
        await noteIfWritable(join(path, name))
      }
    } else if (!(await isSticky(dirname(path)))) {
      await noteIfWritable(dirname(path))
    }
  }
  return [...writable].map((path) => `${path} can be written by every user of this machine`)
}
