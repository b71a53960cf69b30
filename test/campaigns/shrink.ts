/**
 * Makes a failing input small.
 *
 * In: the parts of an input, and a way to see whether fewer of them still fail. Out: parts of which (nearly) none can be
 * left out. This is delta debugging: large runs of parts are left out first, then smaller ones (Zeller and
 * Hildebrandt, 2002).
 *
 * @module
 */

/** How many more tries there may be; counted down. */
export interface Budget {
  left: number
}

/** Leaves out as many parts as it can. */
export async function shrink<T>(
  parts: readonly T[],
  fails: (parts: readonly T[]) => Promise<boolean>,
  budget: Budget,
): Promise<readonly T[]> {
  let kept = parts
  for (let size = Math.ceil(kept.length / 2); size >= 1 && kept.length > 0; ) {
    let smaller = false
    for (let at = 0; at < kept.length && budget.left > 0; ) {
      const without = [...kept.slice(0, at), ...kept.slice(at + size)]
      budget.left--
      if (await fails(without)) {
        kept = without
        smaller = true
      } else {
        at += size
      }
    }
    if (budget.left <= 0) return kept
    if (size > 1) size = Math.ceil(size / 2)
    else if (!smaller) return kept
  }
  return kept
}
