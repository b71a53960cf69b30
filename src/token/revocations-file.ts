/**
 * Loads the revocations file, whole.
 *
 * In: a path. Out: the revocations in it, or every reason why it cannot be used, each line beginning with the path.
 * A file that nobody named need not be there. One that has been there once must stay: its going missing is a
 * fault, and not the end of every revocation.
 *
 * @module
 */
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { fileErrorCode, fileErrorReason } from '../files/file-error.ts'
import type { Load } from '../loaded.ts'
import { createRevocations, type Revocations } from './revocations.ts'
import { parseRevocationsText } from './revocations-text.ts'

/** Where revocations are. */
export interface RevocationsFile {
  readonly file: string
  /** False for the file that is looked for when none is named: it may be missing. */
  readonly required: boolean
}

/** Half a million revocations; whatever is larger is no such file. */
const MOST_BYTES = 33_554_432

/** Makes a loader. It never rejects. */
export function createRevocationsLoader({ file, required }: RevocationsFile): Load<Revocations> {
  let wasThere = required
  return async () => {
    let bytes: Buffer
    try {
      bytes = await readRegularFile(file)
    } catch (error) {
      const missing = fileErrorCode(error) === 'ENOENT'
      if (missing && !wasThere) return { ok: true, value: createRevocations([]), warnings: [] }
      return refused(error instanceof Problem ? error.message : `cannot be read: ${fileErrorReason(error)}`)
    }
    wasThere = true
    let text: string
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    } catch {
      return refused('is not UTF-8 text')
    }
    const parsed = await parseRevocationsText(text)
    if (!parsed.ok) return { ok: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
    return { ok: true, value: createRevocations(parsed.revocations), warnings: [] }
  }

  function refused(what: string): { readonly ok: false; readonly problems: readonly string[] } {
    return { ok: false, problems: [`${file}: ${what}`] }
  }
}

/** Why a file was not even read. */
class Problem extends Error {}

/** Opened without waiting: a pipe in the place of the file would wait for somebody to write. */
async function readRegularFile(file: string): Promise<Buffer> {
  let handle: FileHandle | undefined
  try {
    handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile()) throw new Problem('is not a file')
    if (stats.size > MOST_BYTES) throw new Problem(`is larger than ${MOST_BYTES} bytes`)
    return await handle.readFile()
  } finally {
    await handle?.close()
  }
}
