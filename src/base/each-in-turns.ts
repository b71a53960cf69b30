/** Divides long work among turns of the event loop, so that requests do not wait. */
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Calls `visit` for each item, for `perTurn` of them in one turn. */
export async function eachInTurns<T>(
  items: Iterable<T>,
  perTurn: number,
  visit: (item: T) => void,
): Promise<void> {
  let visited = 0
  for (const item of items) {
    visit(item)
    visited++
    if (visited % perTurn === 0) {
      await nextTurn()
    }
  }
}
