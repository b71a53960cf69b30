/**
 * Reads and replaces the files that settings and commands name, in bounded time and memory.
 * A path may name anything, even a FIFO or a directory.
 * `fileErrorText` says in plain words why a file cannot be used.
 */
import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { open, readdir, readFile, readlink, rename, rm, stat, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, isOutOfFiles } from '../base/errors.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'

export type FileContent = Readonly<{ bytes: Buffer; modifiedAtMs: number }>

/**
 * Reads a regular file of at most `maxBytes`. Follows symbolic links. Never rejects.
 * Problems begin with the path. Warns if every user can read the file, which matters for secrets.
 */
export async function readRegularFile(path: string, maxBytes: number): Promise<Loaded<FileContent>> {
  const unreadable = (problem: string) => notLoaded([`${path}: ${problem}`])
  const tooLarge = `is larger than ${maxBytes} bytes`
  try {
    // A FIFO that is opened without `O_NONBLOCK` waits for a writer.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const stats = await file.stat()
      if (!stats.isFile()) {
        return unreadable('is not a file')
      }
      if (stats.size > maxBytes) {
        return unreadable(tooLarge)
      }
      // The file may grow, or the kernel may report its size as 0.
      const bytes = await readUpTo(file.createReadStream({ autoClose: false }), maxBytes)
      if (bytes.length > maxBytes) {
        return unreadable(tooLarge)
      }
      const isPublic = (stats.mode & 0o004) !== 0
      const warnings = isPublic ? [`${path} can be read by every user of this machine`] : []
      return loaded({ bytes, modifiedAtMs: stats.mtimeMs }, warnings)
    } finally {
      await file.close()
    }
  } catch (error) {
    return notLoaded([`${path}: cannot be read: ${fileErrorText(error)}`], failureKind(error))
  }
}

export function failureKind(error: unknown): 'missing' | 'outOfFiles' | undefined {
  if (isOutOfFiles(error)) {
    return 'outOfFiles'
  }
  return errorCode(error) === 'ENOENT' ? 'missing' : undefined
}

/**
 * Returns the sorted names in a directory, without dot files (`..data` of Kubernetes, locks)
 * and files being replaced.
 */
export const visibleNames = async (directory: string) =>
  (await readdir(directory)).filter((name) => !name.startsWith('.') && !name.endsWith('.tmp')).sort()

/** Reads to the end, or at most one chunk beyond `maxBytes`. */
export async function readUpTo(stream: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) {
      break
    }
  }
  return Buffer.concat(chunks)
}

/**
 * Replaces a file atomically, and keeps owner and mode. Replaces a symbolic link itself, not its target.
 * A new file has the owner and group of its directory, if the caller may set them.
 * write-file-atomic 7.0.1 would leave a truncated file.
 */
export async function replaceFile(path: string, text: string | Buffer): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`
  try {
    const handle = await open(temporary, 'wx', 0o600)
    try {
      await handle.writeFile(text)
      await keepReaders(handle, path)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {}) // the first error is the cause
    throw error
  }
  // Makes the rename durable, where the file system can sync a directory.
  const directory = await open(dirname(path), 'r')
  await directory.sync().catch(() => {})
  await directory.close()
}

/** An older lock is stale: a change of the largest file takes less time. */
const LOCK_STALE_MS = 60_000
const LOCK_RETRY_MS = 100

/** Its message says in plain words why a file cannot be used or changed. It follows the path of the file. */
export class FileError extends Error {}

/** Calls `change` while a lock file names this process. @throws FileError if another command has the lock */
export async function withLock<T>(lock: string, change: () => Promise<T>, retries = 50): Promise<T> {
  // A process id is unique in its PID namespace. Containers that share a volume have one namespace each.
  const namespace = `${hostname()} ${await readlink('/proc/self/ns/pid').catch(() => '')}`
  const holder = `${namespace} ${process.pid}`
  await takeLock(lock, namespace, holder, retries)
  const [changed] = await Promise.allSettled([change()])
  const isHeld = (await readFile(lock, 'utf8').catch(() => '')) === holder
  const [removed] = await Promise.allSettled([isHeld && rm(lock)])
  // The error of the change tells more than an error of its lock.
  if (changed.status === 'rejected') {
    throw changed.reason
  }
  if (removed.status === 'rejected') {
    throw removed.reason
  }
  if (!isHeld) {
    throw new FileError('the lock was lost: another command may have changed it, too')
  }
  return changed.value
}

async function takeLock(lock: string, namespace: string, holder: string, retries: number): Promise<void> {
  let left = retries
  while (!(await tryLock(lock, holder))) {
    if (await isStale(lock, namespace)) {
      await removeStaleLock(lock, namespace)
    } else if (left > 0) {
      await sleep(LOCK_RETRY_MS)
    } else {
      throw new FileError(`another command is changing it; if none runs, remove its lock ${lock}`)
    }
    left--
  }
}

/** Returns false if another command has the lock. */
async function tryLock(lock: string, holder: string): Promise<boolean> {
  try {
    await writeFile(lock, holder, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') {
      return false
    }
    throw error
  }
}

/** Under a second lock, it is checked again: another command may have replaced the stale lock by its own. */
async function removeStaleLock(lock: string, namespace: string): Promise<void> {
  await withLock(`${lock}.stale`, async () => {
    if (await isStale(lock, namespace)) {
      await rm(lock, { force: true })
    }
  })
}

async function isStale(lock: string, namespace: string): Promise<boolean> {
  try {
    const stats = await stat(lock)
    if (!stats.isFile()) {
      return false
    }
    if (Date.now() - stats.mtimeMs > LOCK_STALE_MS) {
      return true
    }
    const [, holderNamespace, pid] = /^(.*) (\d+)$/.exec(await readFile(lock, 'utf8')) ?? []
    if (holderNamespace === namespace) {
      process.kill(Number(pid), 0)
    }
    return false
  } catch (error) {
    return errorCode(error) === 'ESRCH'
  }
}

/**
 * A sidecar that runs as another user must be able to read the file.
 * @throws FileError if those who could read it cannot
 */
async function keepReaders(handle: FileHandle, path: string): Promise<void> {
  const former = await stat(path).catch(() => undefined)
  const { uid, gid, mode } = former ?? (await stat(dirname(path)))
  // Only root may change the owner. Others may choose among their groups.
  await handle.chown(uid, gid).catch(() => handle.chown(-1, gid).catch(() => {}))
  const now = await handle.stat()
  const hasGroup = now.gid === gid
  if (former === undefined) {
    // A directory for its owner and group alone, such as root:sidecar 0750, or a setgid one,
    // as of a volume with fsGroup.
    const isShared = (mode & 0o057) === 0o050 || (mode & 0o2050) === 0o2050
    if (hasGroup && isShared) {
      await handle.chmod(0o640)
    }
    return
  }
  const isForGroup = (mode & 0o040) !== 0
  const isForAll = (mode & 0o004) !== 0
  const keepsReaders = isForGroup ? hasGroup : now.uid === uid
  if (!isForAll && !keepsReaders) {
    throw new FileError('its owner and group cannot be kept: run the command as its owner or as root')
  }
  await handle.chmod(mode & (hasGroup ? 0o777 : 0o755)) // another group must not write
}

const ERROR_TEXTS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or directory',
  ENOTDIR: 'a part of the path is not a directory',
  ELOOP: 'too many symbolic links, or a loop of them',
  EISDIR: 'it is a directory',
  ERR_ENCODING_INVALID_ENCODED_DATA: 'it is not UTF-8 text',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  EBUSY: 'it is in use, perhaps as a mount point: mount its directory in place of the single file',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EPIPE: 'its reader closed it',
}

export function fileErrorText(error: unknown): string {
  if (error instanceof FileError) {
    return error.message
  }
  const code = errorCode(error)
  return ERROR_TEXTS[code] ?? code
}

export const errorCode = (error: unknown): string => codeOf(error) ?? 'unknown error'
