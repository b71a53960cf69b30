/**
 * Changes a credentials file on disk.
 *
 * In: a path and an edit. Out: the file holds the edited version, or nothing has changed and it says why. The file is
 * valid before and after, replaced whole, and locked meanwhile against a second writer (a directory
 * `<file>.lock` beside it). A symbolic link is followed, and stays.
 *
 * @module
 */
import { realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { lock as lockFile } from 'proper-lockfile'
import { fileErrorCode, fileErrorReason, LOCK_HELD, LOCK_STALE_MS, replaceFile } from '../reload/files.ts'
import type { Edit } from './accounts-edit.ts'
import { type ReadAccounts, readAccountsFile } from './accounts-file.ts'
import { parseAccountsText } from './accounts-text.ts'
import type { Changed } from './credential-editor.ts'

/** How to change a file. */
export interface FileEditOptions {
  /** The text to begin with when there is no such file; without it, a missing file is a problem. */
  readonly initialText?: string
  /** How often a lock that another writer holds is tried again, some 100 ms apart. */
  readonly lockRetries?: number
  /** proper-lockfile's `lock`, or what a test puts in its place. */
  readonly lock?: typeof lockFile
}

/** Changes a credentials file. Problems are lines for a person. */
export async function editAccountsFile(
  file: string,
  edit: Edit,
  { initialText, lockRetries = 50, lock = lockFile }: FileEditOptions = {},
): Promise<Changed> {
  let compromised = false
  let unlock: () => Promise<void>
  let target: string
  try {
    target = await realTarget(file)
    unlock = await lock(target, {
      stale: LOCK_STALE_MS,
      realpath: false, // ours also works for a file that is still to be created
      retries: { retries: lockRetries, factor: 1, minTimeout: 100, maxTimeout: 100 },
      // Happens to a process that stood still for ten seconds; the default throws from a timer.
      onCompromised: () => {
        compromised = true
      },
    })
  } catch (error) {
    const held = fileErrorCode(error) === 'ELOCKED'
    return failed(file, held ? LOCK_HELD : fileErrorReason(error))
  }
  const change = async (): Promise<Changed> => {
    const before = await readOrBegin(target, initialText)
    if (!before.ok) return { ok: false, unusable: true, problems: before.problems }
    const edited = edit(before.text, before.accounts)
    if (!edited.ok) return failed(file, edited.problem)
    if (!(await parseAccountsText(edited.text)).ok) return failed(file, 'the change would leave it invalid')
    if (compromised) return failed(file, 'the lock was lost, so nothing was changed')
    await replaceFile(target, edited.text)
    return { ok: true }
  }
  const changed = await change().catch((error: unknown) =>
    failed(file, `cannot be written: ${fileErrorReason(error)}`),
  )
  if (!compromised) await unlock()
  return changed
}

async function readOrBegin(file: string, initialText: string | undefined): Promise<ReadAccounts> {
  const read = await readAccountsFile(file)
  if (read.ok || !read.missing || initialText === undefined) return read
  return { ok: true, accounts: [], text: initialText, warnings: [] }
}

/** The file behind symbolic links, so that two names of one file share one lock. */
async function realTarget(file: string): Promise<string> {
  try {
    return await realpath(file)
  } catch {
    return join(await realpath(dirname(file)), basename(file))
  }
}

function failed(file: string, what: string): Changed {
  return { ok: false, unusable: false, problems: [`${file}: ${what}`] }
}
