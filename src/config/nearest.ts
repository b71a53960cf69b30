/**
 * Finds the name somebody meant: `prot` is `port`, `lifetime_seconds` is `lifetimeSeconds`.
 *
 * @module
 */

/** Longer names are no slips of the finger, and the comparison grows with the square of the length. */
const LONGEST = 64

/**
 * The candidate that is spelled most like `name`, or undefined when none is close. Case and the separators
 * `.`, `_` and `-` do not count; the beginning of exactly one candidate will do.
 */
export function nearest(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > LONGEST) return undefined
  const wanted = plain(name)
  const ranked = candidates
    .map((candidate) => ({ candidate, distance: distance(wanted, plain(candidate)) }))
    .sort((a, b) => a.distance - b.distance)
  const best = ranked[0]
  if (best !== undefined && best.distance <= Math.floor(wanted.length / 3)) return best.candidate
  const begun = candidates.filter((candidate) => wanted.length >= 3 && plain(candidate).startsWith(wanted))
  return begun.length === 1 ? begun[0] : undefined
}

const plain = (name: string) => name.toLowerCase().replace(/[._-]/g, '')

/** Edits between two words; a swap of neighbours is one edit (optimal string alignment). */
function distance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1]
      let cost = Math.min(
        at(last, column) + 1,
        at(current, column - 1) + 1,
        at(last, column - 1) + (same ? 0 : 1),
      )
      if (row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]) {
        cost = Math.min(cost, at(beforeLast, column - 2) + 1)
      }
      current.push(cost)
    }
    beforeLast = last
    last = current
  }
  return at(last, b.length)
}

const at = (row: readonly number[], column: number): number => Number(row[column])
