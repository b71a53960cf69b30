/**
 * Tells versions of files apart without reading them.
 *
 * In: paths of files and directories. Out: a text that is another one after every change, whether a file was
 * rewritten, replaced, removed or came into being, behind symbolic links too (Kubernetes swaps a link to a whole
 * directory). Dot files and half-written replacements in a directory are no part of it: nobody reads them.
 *
 * @module
 */
import type { BigIntStats } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { fileErrorCode } from '../reload/files.ts'

/** What files look like at one moment. */
export interface FilesVersion {
  /** Two equal ones: the same version. */
  readonly id: string
  /**
   * When the newest change was made, in epoch milliseconds of the file system; 0 when nothing is there. It is the
   * time of the change of status, as that of the content says nothing of when a file was moved to its place.
   */
  readonly changedAt: number
  /** Paths that are neither file nor directory. Opening a pipe would wait for somebody to write. */
  readonly unreadable: readonly string[]
  /** The files that are there, by path. */
  readonly files: ReadonlyMap<string, SeenFile>
  /** The directories a change shows up in, each with a text that is another one once it was replaced. */
  readonly directories: ReadonlyMap<string, string>
}

/** What a file looks like at one moment. */
export interface SeenFile {
  /** Another one after every change. */
  readonly id: string
  /** Another one when it is another file under the same name. */
  readonly inode: string
  /** When its status changed, in epoch milliseconds of the file system. */
  readonly changedAt: number
}

/** Whether a name in a directory is part of its version, as far as `isPart` says nothing else. */
export function isVersioned(name: string, isPart: IsPart = () => true): boolean {
  return !name.startsWith('.') && !name.endsWith('.tmp') && isPart(name)
}

/** Whether a file of that name in a directory is anything to whoever reads it. */
export type IsPart = (name: string) => boolean

/**
 * Whether everything that differs came into place whole: another file was put there by a rename or the swap of a link,
 * or the file is gone. What is new, or still the same file, may be half-written.
 */
export function isReplaced(former: FilesVersion, version: FilesVersion): boolean {
  return differing(former, version).every(([before, after]) => {
    return after === undefined || (before !== undefined && before.inode !== after.inode)
  })
}

/** When the first of the changes between two versions was made, in epoch milliseconds of the file system. */
export function oldestChange(former: FilesVersion, version: FilesVersion): number {
  // A file that came from elsewhere may not have changed since long; its directory has.
  const times = differing(former, version).map(([, after]) =>
    after !== undefined && after.changedAt > former.changedAt ? after.changedAt : version.changedAt,
  )
  return Math.min(version.changedAt, ...times)
}

function differing(former: FilesVersion, version: FilesVersion) {
  const paths = new Set([...former.files.keys(), ...version.files.keys()])
  return [...paths]
    .map((path) => [former.files.get(path), version.files.get(path)] as const)
    .filter(([before, after]) => before?.id !== after?.id)
}

/**
 * Looks at files and directories as they are now. Never rejects: what is missing is a version like others.
 *
 * @param isPart - which files of a directory count; default: all but dot files and half-written replacements
 */
export async function versionOf(paths: readonly string[], isPart?: IsPart): Promise<FilesVersion> {
  const unreadable: string[] = []
  const files = new Map<string, SeenFile>()
  const directories = new Map<string, string>()
  let changed = 0n

  const look = async (path: string): Promise<BigIntStats> => {
    const stats = await stat(path, { bigint: true })
    if (stats.ctimeMs > changed) changed = stats.ctimeMs
    return stats
  }

  const watchable = (path: string, { dev, ino, birthtimeNs }: BigIntStats) => {
    // A new directory often gets the number of the one removed before it, so its time of birth counts, too.
    directories.set(path, `${dev} ${ino} ${birthtimeNs}`)
  }

  const describeFile = (path: string, stats: BigIntStats): string => {
    const id = textOf(stats)
    files.set(path, { id, inode: `${stats.dev} ${stats.ino}`, changedAt: Number(stats.ctimeMs) })
    return id
  }

  const describe = async (path: string): Promise<string> => {
    const stats = await look(path)
    if (!stats.isDirectory()) {
      if (!stats.isFile()) unreadable.push(path)
      return describeFile(path, stats)
    }
    watchable(path, stats)
    const names = (await readdir(path)).filter((name) => isVersioned(name, isPart)).sort()
    const members = await Promise.all(
      names.map(async (name) => {
        const member = join(path, name)
        return look(member).then((found) => describeFile(member, found), fileErrorCode)
      }),
    )
    return JSON.stringify([String(stats.ino), names, members])
  }

  const described = await Promise.all(
    paths.map(async (path) => {
      const absolute = resolve(path)
      const parent = dirname(absolute)
      await look(parent).then(
        (stats) => watchable(parent, stats),
        () => {}, // a parent that is missing cannot be watched
      )
      return describe(absolute).catch(fileErrorCode)
    }),
  )
  return { id: JSON.stringify(described), changedAt: Number(changed), unreadable, files, directories }
}

function textOf({ mode, dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${mode} ${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
}
