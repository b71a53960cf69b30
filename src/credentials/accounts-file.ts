/**
 * Reads a credentials file from disk, whole.
 *
 * In: a path. Out: its accounts and what is worth a warning, or every reason why it cannot be used; each line begins
 * with the path, and none repeats a hash or a secret.
 *
 * @module
 */
import { readRegularFile } from '../reload/files.ts'
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

/** Some 200,000 credentials; whatever is larger is no such file. */
const MOST_BYTES = 33_554_432

/** Reads and checks a credentials file. Never rejects: a file that cannot be read is a problem like others. */
export async function readAccountsFile(file: string): Promise<ReadAccounts> {
  const read = await readRegularFile(file, MOST_BYTES)
  if (!read.ok) return unusable(file, read.problem, read.missing)
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(read.bytes)
  } catch {
    return unusable(file, 'is not UTF-8 text')
  }
  const parsed = await parseAccountsText(text)
  if (!parsed.ok) {
    return { ok: false, missing: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
  }
  const worldReadable = (read.mode & 0o004) !== 0
  const warnings = worldReadable ? [`${file} can be read by every user of this machine`] : []
  return { ok: true, accounts: parsed.accounts, text, warnings }
}

function unusable(file: string, what: string, missing = false): ReadAccounts {
  return { ok: false, missing, problems: [`${file}: ${what}`] }
}
