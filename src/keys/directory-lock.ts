/**
 * Keeps two commands from changing one key directory at the same time.
 *
 * The lock is a dot file in the directory, which readers pass over; one left behind by a command that was
 * killed goes stale after ten seconds. Readers need no lock: every file is replaced whole.
 *
 * @module
 */
import { join } from 'node:path'
import { LOCK_STALE_MS } from '../reload/files.ts'

/**
 * Runs `work` while holding the lock, waiting about two seconds for another command to finish.
 *
 * @throws an error whose `code` is `ELOCKED` when the other command does not finish, or a file system code
 *   when the lock cannot be made
 */
export async function withDirectoryLock<T>(directory: string, work: () => Promise<T>): Promise<T> {
  // Loaded when needed: it installs exit handlers, which a serving process should not have.
  const { lock } = await import('proper-lockfile')
  const release = await lock(directory, {
    stale: LOCK_STALE_MS,
    lockfilePath: join(directory, '.lock'),
    retries: { retries: 8, minTimeout: 50, maxTimeout: 300 },
  })
  try {
    return await work()
  } finally {
    await release()
  }
}
