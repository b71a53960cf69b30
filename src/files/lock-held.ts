/**
 * What is told to somebody whose change has to wait for that of another command.
 *
 * @module
 */

/** How long a lock is respected that nobody renews, in milliseconds: one that a killed command left behind goes stale. */
export const LOCK_STALE_MS = 10_000

/** Fits behind the name of what is locked. */
export const LOCK_HELD = `another command is changing it (it holds the lock); if that command was killed, try again in ${LOCK_STALE_MS / 1000} seconds`
