/**
 * Loads the revocations file, whole.
 *
 * In: a path. Out: the revocations in it, or every reason why it cannot be used, each line beginning with the path.
 * A file that nobody named need not be there. One that has been there once must stay: its going missing is a
 * fault, and not the end of every revocation.
 *
 * @module
 */
import { readRegularFile } from '../reload/files.ts'
import type { Load } from '../reload/loaded.ts'
import { createRevocations, createRevocationsInSlices, type Revocations } from './revocations.ts'
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
    const read = await readRegularFile(file, MOST_BYTES)
    if (!read.ok) {
      if (read.missing && !wasThere) return { ok: true, value: createRevocations([]), warnings: [] }
      return refused(read.problem)
    }
    wasThere = true
    let text: string
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(read.bytes)
    } catch {
      return refused('is not UTF-8 text')
    }
    const parsed = await parseRevocationsText(text)
    if (!parsed.ok) return { ok: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
    return { ok: true, value: await createRevocationsInSlices(parsed.revocations), warnings: [] }
  }

  function refused(what: string): { readonly ok: false; readonly problems: readonly string[] } {
    return { ok: false, problems: [`${file}: ${what}`] }
  }
}
