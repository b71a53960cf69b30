/**
 * Long work of the only thread, done in slices, so that requests are answered in between.
 *
 * @module
 */
import { setImmediate as turn } from 'node:timers/promises'

/** For how many milliseconds the work goes on before others get their turn. */
const SLICE_MS = 5

/** Does the work to its end. Every step of it has to be short against a slice; a fault in it rejects. */
export async function inSlices<T>(steps: Generator<unknown, T>): Promise<T> {
  for (;;) {
    const sliceEnd = performance.now() + SLICE_MS
    do {
      const step = steps.next()
      if (step.done === true) return step.value
    } while (performance.now() < sliceEnd)
    await turn()
  }
}

/** Does the work at once, where nobody waits. */
export function atOnce<T>(steps: Generator<unknown, T>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}
