/**
 * Keeps objects on disk, one file each.
 *
 * A file holds the object's bytes, then its metadata as JSON, then the length of that JSON in four bytes. It is
 * written under another name and renamed when complete: a reader sees the old object or the new one, never a
 * part or a mixture, and an upload that breaks off leaves nothing. Names on disk are digests of the account and
 * of the key's raw bytes: two keys that differ in one byte (`a//b`, `a/b`, `a%2Fb`, `a/../a/b`) are two
 * objects, and no key reaches outside the directory.
 *
 * @module
 */
import { createHash, hash, randomUUID } from 'node:crypto'
import { mkdirSync, rmSync } from 'node:fs'
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'

/** What is known of an object besides its bytes. */
export interface ObjectMetadata {
  /** The request path as it was sent, one character for each byte. */
  readonly key: string
  /** Length in bytes. */
  readonly size: number
  /** SHA-256 of the bytes in hex, in double quotes: a strong entity tag (RFC 9110, section 8.8.3). */
  readonly etag: string
  readonly contentType: string
  /** When the object was stored, RFC 3339. */
  readonly lastModified: string
}

/** An object opened for reading: it stays what it was when it is replaced or removed meanwhile. */
export interface OpenObject {
  readonly metadata: ObjectMetadata
  /** Streams the bytes `first` to `last`, both inclusive, and closes the object. */
  read(first: number, last: number): Readable
  /** Closes an object that was not read. */
  close(): Promise<void>
}

/** Objects by account and key. Every method rejects on a fault of the disk. */
export interface ObjectFiles {
  /**
   * Stores an object whole, or not at all if `body` breaks off: then it rejects with what `body` threw.
   * `created`: there was none of this key.
   */
  put(
    account: string,
    key: string,
    contentType: string,
    body: AsyncIterable<Uint8Array>,
  ): Promise<{ readonly created: boolean; readonly metadata: ObjectMetadata }>
  /** Opens an object; nothing when there is none. */
  open(account: string, key: string): Promise<OpenObject | undefined>
  /** Removes an object; false when there was none. */
  remove(account: string, key: string): Promise<boolean>
  /** Every object of an account whose key begins with `prefix`, sorted by key. */
  list(account: string, prefix: string): Promise<readonly ObjectMetadata[]>
}

/** What the files need. */
export interface ObjectFilesOptions {
  /** Made when missing, mode 0700. Belongs to this program: `uploads` in it is emptied at the start. */
  readonly directory: string
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

const TRAILER_BYTES = 4

/** Opens the directory, and sweeps out what uploads left behind when the process was killed. */
export function createObjectFiles({ directory, now }: ObjectFilesOptions): ObjectFiles {
  const uploads = join(directory, 'uploads')
  rmSync(uploads, { recursive: true, force: true })
  mkdirSync(uploads, { recursive: true, mode: 0o700 })

  const accountDirectory = (account: string) => join(directory, 'accounts', hash('sha256', account, 'hex'))
  const objectFile = (account: string, key: string) =>
    join(accountDirectory(account), hash('sha256', key, 'hex'))

  const put: ObjectFiles['put'] = async (account, key, contentType, body) => {
    const upload = join(uploads, randomUUID())
    try {
      const file = await open(upload, 'wx', 0o600)
      let metadata: ObjectMetadata
      try {
        metadata = await write(file, body, { key, contentType, now })
      } finally {
        await file.close()
      }
      await mkdir(accountDirectory(account), { recursive: true, mode: 0o700 })
      const target = objectFile(account, key)
      const created = (await ifPresent(stat(target))) === undefined
      await rename(upload, target)
      return { created, metadata }
    } catch (fault) {
      await rm(upload, { force: true })
      throw fault
    }
  }

  return {
    put,
    open: (account, key) => openObject(objectFile(account, key)),
    async remove(account, key) {
      return (await ifPresent(rm(objectFile(account, key)).then(() => true))) ?? false
    },
    async list(account, prefix) {
      const found: ObjectMetadata[] = []
      const folder = accountDirectory(account)
      for (const name of (await ifPresent(readdir(folder))) ?? []) {
        const object = await openObject(join(folder, name))
        if (object === undefined) continue // removed since the directory was read
        await object.close()
        if (object.metadata.key.startsWith(prefix)) found.push(object.metadata)
      }
      return found.sort((a, b) => (a.key < b.key ? -1 : 1))
    },
  }
}

async function write(
  file: FileHandle,
  body: AsyncIterable<Uint8Array>,
  { key, contentType, now }: { key: string; contentType: string; now: () => number },
): Promise<ObjectMetadata> {
  const digest = createHash('sha256')
  let size = 0
  for await (const chunk of body) {
    digest.update(chunk)
    size += chunk.length
    await file.writeFile(chunk) // writes on from where the last one ended
  }
  const etag = `"${digest.digest('hex')}"`
  const metadata = { key, size, etag, contentType, lastModified: new Date(now()).toISOString() }
  const json = Buffer.from(JSON.stringify(metadata))
  const length = Buffer.alloc(TRAILER_BYTES)
  length.writeUInt32BE(json.length)
  await file.writeFile(Buffer.concat([json, length]))
  return metadata
}

async function openObject(path: string): Promise<OpenObject | undefined> {
  const file = await ifPresent(open(path))
  if (file === undefined) return undefined
  try {
    const { size: end } = await file.stat()
    const length = (await bytesAt(file, end - TRAILER_BYTES, TRAILER_BYTES)).readUInt32BE()
    const json = await bytesAt(file, end - TRAILER_BYTES - length, length)
    const metadata = JSON.parse(json.toString()) as ObjectMetadata
    return {
      metadata,
      read: (first, last) => file.createReadStream({ start: first, end: last }),
      close: () => file.close(),
    }
  } catch (fault) {
    await file.close()
    throw fault
  }
}

async function bytesAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const { buffer } = await file.read({ buffer: Buffer.alloc(length), position })
  return buffer
}

/** The outcome, or nothing where the file or directory is not there. */
async function ifPresent<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (fault) {
    if (fault instanceof Error && 'code' in fault && fault.code === 'ENOENT') return undefined
    throw fault
  }
}
