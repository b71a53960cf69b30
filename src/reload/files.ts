/**
 * Reads and replaces the files that settings and commands name, in bounded time and memory.
 * A path may name anything, a FIFO or a directory included. Errors say why in plain words, without the path.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { buffer } from 'node:stream/consumers'

/** The outcome of reading. `problem` follows the path and a colon. */
export type ReadFile =
  | {
      readonly ok: true
      readonly bytes: Buffer
      /** The warning for a file with a secret that every user of the machine can read. */
      readonly exposure: readonly string[]
      /** Epoch milliseconds. */
      readonly modifiedAt: number
    }
  | { readonly ok: false; readonly missing: boolean; readonly problem: string }

/** Opening a FIFO without `O_NONBLOCK` waits for a writer. */
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK

/** Codes beside those of the system: `ENOTREGULAR`. */
class UnreadableFile extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** Reads a regular file of at most `maxBytes`. Follows symbolic links. Never rejects. */
export async function readRegularFile(path: string, maxBytes: number): Promise<ReadFile> {
  try {
    const file = await open(path, OPEN_FLAGS)
    try {
      const stats = await file.stat()
      checkStats(stats, maxBytes)
      // `end` is inclusive: one byte more than allowed tells a file that grows, or whose size the kernel gives as 0.
      const bytes = await buffer(file.createReadStream({ end: maxBytes, autoClose: false }))
      if (bytes.length > maxBytes) throw tooLarge(maxBytes)
      const exposure = (stats.mode & 0o004) === 0 ? [] : [`${path} can be read by every user of this machine`]
      return { ok: true, bytes, exposure, modifiedAt: stats.mtimeMs }
    } finally {
      await file.close()
    }
  } catch (error) {
    const problem =
      error instanceof UnreadableFile ? error.message : `cannot be read: ${fileErrorReason(error)}`
    return { ok: false, missing: fileErrorCode(error) === 'ENOENT', problem }
  }
}

/**
 * Reads a regular file of at most `maxBytes` synchronously.
 *
 * @throws what `node:fs` throws, or an error whose `code` is `EISDIR`, `ENOTREGULAR` or `EFBIG`
 */
export function readRegularFileSync(path: string, maxBytes: number): Buffer {
  const file = openSync(path, OPEN_FLAGS)
  try {
    checkStats(fstatSync(file), maxBytes)
    const bytes = readFileSync(file)
    if (bytes.length > maxBytes) throw tooLarge(maxBytes)
    return bytes
  } finally {
    closeSync(file)
  }
}

function checkStats(stats: Stats, maxBytes: number): void {
  if (!stats.isFile())
    throw new UnreadableFile(stats.isDirectory() ? 'EISDIR' : 'ENOTREGULAR', 'is not a file')
  if (stats.size > maxBytes) throw tooLarge(maxBytes)
}

const tooLarge = (maxBytes: number) => new UnreadableFile('EFBIG', `is larger than ${maxBytes} bytes`)

/**
 * Replaces or creates a file atomically, with mode 0600 and the former owner. A symbolic link is replaced itself.
 * Not write-file-atomic: its 7.0.1 ignores short writes and puts a truncated file in place on a full disk.
 *
 * @throws what `node:fs` throws; the former version is untouched then
 */
export async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`
  try {
    const handle = await open(temporary, 'wx', 0o600)
    try {
      await handle.writeFile(text)
      const former = await stat(path).catch(() => undefined)
      // Only root may change the owner. For any other user the failure is fine: the file is or becomes theirs.
      if (former !== undefined) await handle.chown(former.uid, former.gid).catch(() => {})
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  // Makes the rename durable. Some file systems cannot sync a directory, which is no failure: the file is in place.
  const directory = await open(dirname(path), 'r')
  await directory.sync().catch(() => {})
  await directory.close()
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or directory',
  ENOTDIR: 'a part of the path is not a directory',
  ELOOP: 'too many symbolic links, or a loop of them',
  EISDIR: 'it is a directory',
  ENOTREGULAR: 'it is not a file',
  EFBIG: 'it is too large',
  ERR_ENCODING_INVALID_ENCODED_DATA: 'it is not UTF-8 text',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
}

/** Why a file operation failed, in plain words, or the system's code. */
export function fileErrorReason(error: unknown): string {
  const code = fileErrorCode(error)
  return REASONS[code] ?? code
}

/** The system's code, such as `ENOSPC`. */
export function fileErrorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
}

/** A lock that is not renewed for so many milliseconds is stale: its command was killed. */
export const LOCK_STALE_MS = 10_000

/** Follows the name of the locked file or directory. */
export const LOCK_HELD = `another command is changing it (it holds the lock); if that command was killed, try again in ${LOCK_STALE_MS / 1000} seconds`
