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
import { fileErrorCode } from '../files/file-error.ts'

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
  /** The directories a change shows up in, each with a text that is another one once it was replaced. */
  readonly directories: ReadonlyMap<string, string>
}

/** Whether a name in a directory is part of its version. */
export function isVersioned(name: string): boolean {
  return !name.startsWith('.') && !name.endsWith('.tmp')
}

/** Looks at files and directories as they are now. Never rejects: what is missing is a version like others. */
export async function versionOf(paths: readonly string[]): Promise<FilesVersion> {
  const unreadable: string[] = []
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

  const describe = async (path: string): Promise<string> => {
    const stats = await look(path)
    if (!stats.isDirectory()) {
      if (!stats.isFile()) unreadable.push(path)
      return textOf(stats)
    }
    watchable(path, stats)
    const names = (await readdir(path)).filter(isVersioned).sort()
    const members = await Promise.all(names.map((name) => look(join(path, name)).then(textOf, fileErrorCode)))
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
  return { id: JSON.stringify(described), changedAt: Number(changed), unreadable, directories }
}

function textOf({ mode, dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${mode} ${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
}
