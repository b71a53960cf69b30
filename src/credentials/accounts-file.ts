/**
 * Reads a credentials file from disk, whole.
 *
 * In: a path. Out: its accounts and what is worth a warning, or every reason why it cannot be used; each line begins
 * with the path, and none repeats a hash or a secret.
 *
 * @module
 */
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { fileErrorCode, fileErrorReason } from '../files/file-error.ts'
import type { Account } from './accounts.ts'
import { parseAccountsText } from './accounts-text.ts'

/** The outcome of reading a credentials file. `missing`: there is no such file. */
export type ReadAccounts =
  | {
      readonly ok: true
      readonly accounts: readonly Account[]
      readonly text: string
      readonly warnings: readonly string[]
    }
  | { readonly ok: false; readonly missing: boolean; readonly problems: readonly string[] }

/** Reads and checks a credentials file. Never rejects: a file that cannot be read is a problem like others. */
export async function readAccountsFile(file: string): Promise<ReadAccounts> {
  let bytes: Buffer
  let mode: number
  let handle: FileHandle | undefined
  try {
    // One handle for both: the mode belongs to the version that is read, though the name may be swapped.
    // Without waiting: opening a pipe in the place of the file would last until somebody writes.
    handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    mode = (await handle.stat()).mode
    bytes = await handle.readFile()
  } catch (error) {
    return unusable(file, `cannot be read: ${fileErrorReason(error)}`, fileErrorCode(error) === 'ENOENT')
  } finally {
    await handle?.close()
  }

  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return unusable(file, 'is not UTF-8 text')
  }
  const parsed = parseAccountsText(text)
  if (!parsed.ok) {
    return { ok: false, missing: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
  }
  const worldReadable = (mode & 0o004) !== 0
  const warnings = worldReadable ? [`${file} can be read by every user of this machine`] : []
  return { ok: true, accounts: parsed.accounts, text, warnings }
}

function unusable(file: string, what: string, missing = false): ReadAccounts {
  return { ok: false, missing, problems: [`${file}: ${what}`] }
}
