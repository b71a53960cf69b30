/**
 * Waiting for a condition instead of for a time.
 *
 * @module
 */
import { setTimeout as sleep } from 'node:timers/promises'

/** Resolves once the condition holds; rejects when it has not within a generous time, 5 s unless told. */
export async function waitUntil(condition: () => boolean, withinMs = 5000): Promise<void> {
  const end = performance.now() + withinMs
  while (!condition()) {
    if (performance.now() > end) throw new Error('what was waited for did not happen')
    await sleep(2)
  }
}
