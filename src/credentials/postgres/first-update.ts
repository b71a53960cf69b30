/**
 * Waits for the database at the start.
 *
 * In: a way to take over what it holds. Out: that this has been done, or why it never will. A database that cannot be
 * reached may come; one that answers and refuses needs a person.
 *
 * @module
 */
import { setTimeout as delay } from 'node:timers/promises'
import { postgresFailure } from './failure.ts'
import { pauseAfter } from './follower.ts'

/** The outcome; the problem fits behind the database's name. */
export type FirstUpdate<T> =
  | { readonly ok: true; readonly updated: T }
  | { readonly ok: false; readonly problem: string }

/** How to wait. */
export interface WaitOptions {
  /** The longest pause between two tries, in milliseconds. */
  readonly longestPauseMs: number
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined
  /** Told once when there is something to wait for. */
  readonly onAway: (cause: unknown) => void
}

/** Tries until it is done, or it is clear that it cannot be. Never rejects. */
export async function firstUpdate<T>(
  update: () => Promise<T>,
  { longestPauseMs, signal, onAway }: WaitOptions,
): Promise<FirstUpdate<T>> {
  let failures = 0
  let outcome: FirstUpdate<T> | undefined
  while (outcome === undefined) {
    try {
      outcome = { ok: true, updated: await update() }
    } catch (cause) {
      const { kind, message } = postgresFailure(cause)
      failures++
      if (kind === 'unusable') outcome = { ok: false, problem: message }
      else if (failures === 1) onAway(cause)
    }
    if (outcome === undefined && !(await paused(pauseAfter(failures, longestPauseMs), signal))) {
      outcome = { ok: false, problem: 'stopped before it could be reached' }
    }
  }
  return outcome
}

/** Whether the pause was not cut short. */
async function paused(ms: number, signal: AbortSignal | undefined): Promise<boolean> {
  return delay(ms, true, { ...(signal && { signal }) }).catch(() => false)
}
