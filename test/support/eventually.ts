/** Waits for what another process, a socket or a timer brings about. */
import { setTimeout as wait } from 'node:timers/promises'

const PATIENCE_MS = 90_000

/**
 * For what is promised within a second. A busy machine must not fail a test,
 * and what only the next poll of half a minute brings about must.
 */
export const SOON_MS = 20_000

/**
 * Waits until something holds. Looks every few milliseconds, and less often the longer it takes:
 * a look may be a scrape, which costs as much as a hundred requests.
 *
 * @param what - what is waited for, for the error
 */
export async function eventually(
  holds: () => unknown,
  what: string | (() => string),
  patienceMs = PATIENCE_MS,
): Promise<void> {
  const started = performance.now()
  while (!(await holds())) {
    const waitedMs = performance.now() - started
    if (waitedMs > patienceMs) {
      throw new Error(`waited in vain for ${typeof what === 'string' ? what : what()}`)
    }
    await wait(5 + waitedMs / 10)
  }
}

/** Resolves as the promise does. Rejects if it takes so long that a busy machine is no excuse. */
export async function inTime<T>(promise: Promise<T>, what: string, patienceMs = PATIENCE_MS): Promise<T> {
  const patience = new AbortController()
  const late = wait(patienceMs, undefined, { signal: patience.signal }).then(() => {
    throw new Error(`waited in vain for ${what}`)
  })
  late.catch(() => {}) // aborted
  try {
    return await Promise.race([promise, late])
  } finally {
    patience.abort()
  }
}

/** Whether an attempt succeeds. */
export function succeeds(attempt: Promise<unknown>): Promise<boolean> {
  return attempt.then(
    () => true,
    () => false,
  )
}

/** Waits until a count above 0 stands still; returns it. */
export async function standsStill(count: () => number, stillMs = 150): Promise<number> {
  let last = -1
  let since = performance.now()
  await eventually(() => {
    if (count() !== last) {
      last = count()
      since = performance.now()
    }
    return last > 0 && performance.now() - since > stillMs
  }, 'a count to stand still')
  return last
}

/** Waits for what events bring about: everything that is waited for is looked at again with each `wake`. */
export class Waiters {
  readonly #looks = new Set<() => void>()

  wake(): void {
    for (const look of [...this.#looks]) {
      look()
    }
  }

  /** Resolves with what `look` finds; rejects when it throws, or finds nothing in time. */
  wait<T>(look: () => T | undefined, what: () => string): Promise<T> {
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(patience)
        this.#looks.delete(lookAgain)
      }
      const patience = setTimeout(() => {
        end()
        reject(new Error(`waited in vain for ${what()}`))
      }, PATIENCE_MS)
      patience.unref() // what brings it about keeps the process alive
      const lookAgain = () => {
        try {
          const found = look()
          if (found === undefined) {
            return
          }
          end()
          resolve(found)
        } catch (error) {
          end()
          reject(error)
        }
      }
      this.#looks.add(lookAgain)
      lookAgain()
    })
  }
}
