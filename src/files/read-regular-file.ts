/**
 * Reads a file that may be anything, whole, in bounded time and memory.
 *
 * In: a path, and how large such a file may be. Out: its bytes, or why it was not read. Symbolic links are followed. It
 * is opened without waiting, as a pipe in the place of the file would wait for somebody to write; what is looked at
 * and what is read is one and the same version, though the name may be swapped meanwhile; and a file that grows
 * while it is read does not grow beyond the bound.
 *
 * @module
 */
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs'
import { open } from 'node:fs/promises'
import { fileErrorCode, fileErrorReason } from './file-error.ts'

/** The outcome; the problem fits behind the path and a colon. */
export type ReadFile =
  | {
      readonly ok: true
      readonly bytes: Buffer
      readonly mode: number
      /** Epoch milliseconds. */
      readonly modifiedAt: number
    }
  | {
      readonly ok: false
      /** There is no such file. */
      readonly missing: boolean
      readonly problem: string
    }

/** Why a file was not even read. Codes beside those of the system: `ENOTREGULAR`. */
class Unfit extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

const WITHOUT_WAITING = constants.O_RDONLY | constants.O_NONBLOCK

/** Reads a file. Never rejects. */
export async function readRegularFile(path: string, mostBytes: number): Promise<ReadFile> {
  try {
    return await readOrThrow(path, mostBytes)
  } catch (error) {
    const problem = error instanceof Unfit ? error.message : `cannot be read: ${fileErrorReason(error)}`
    return { ok: false, missing: fileErrorCode(error) === 'ENOENT', problem }
  }
}

async function readOrThrow(path: string, mostBytes: number): Promise<ReadFile> {
  const file = await open(path, WITHOUT_WAITING)
  try {
    const stats = await file.stat()
    const gathered = gather(stats, mostBytes)
    while (gathered.took((await file.read(gathered.room())).bytesRead)) {}
    return { ok: true, bytes: gathered.bytes(), mode: stats.mode, modifiedAt: stats.mtimeMs }
  } finally {
    await file.close()
  }
}

/**
 * Reads a file before anything else happens.
 *
 * @throws what `node:fs` throws, or an error whose `code` is `EISDIR`, `ENOTREGULAR` or `EFBIG`
 */
export function readRegularFileSync(path: string, mostBytes: number): Buffer {
  const file = openSync(path, WITHOUT_WAITING)
  try {
    const gathered = gather(fstatSync(file), mostBytes)
    while (gathered.took(readSync(file, gathered.room()))) {}
    return gathered.bytes()
  } finally {
    closeSync(file)
  }
}

/** For what a file has grown by since it was looked at, and for files of the kernel, which say that they are empty. */
const MORE_BYTES = 65_536

/** Takes down what is read, until that is too much. */
function gather(stats: Stats, mostBytes: number) {
  if (!stats.isFile()) throw new Unfit(stats.isDirectory() ? 'EISDIR' : 'ENOTREGULAR', 'is not a file')
  const tooLarge = () => new Unfit('EFBIG', `is larger than ${mostBytes} bytes`)
  if (stats.size > mostBytes) throw tooLarge()
  const chunks: Buffer[] = []
  let size = 0
  let next = Buffer.allocUnsafe(stats.size + 1)
  return {
    /** Where to read to. */
    room: () => next,
    /** So many bytes have been read there. Returns whether there may be more. */
    took(bytesRead: number): boolean {
      if (bytesRead === 0) return false
      chunks.push(next.subarray(0, bytesRead))
      size += bytesRead
      if (size > mostBytes) throw tooLarge()
      next = Buffer.allocUnsafe(Math.min(MORE_BYTES, mostBytes - size + 1))
      return true
    },
    bytes(): Buffer {
      const [whole, ...more] = chunks
      return whole !== undefined && more.length === 0 ? whole : Buffer.concat(chunks)
    },
  }
}
