/**
 * Problems of the configuration. A problem names the setting, its requirement and the location of the value. It never
 * repeats the value, which may be a misplaced secret.
 */

export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a mistake of a complete source. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where no source gave a value. */
  readonly origin: string
}

/** A problem of a file; `path` is the setting that names it. */
export function fileProblem(path: string, message: string): Problem {
  return { path, message, origin: 'default' }
}

const MAX_PRINTED = 20

/** A summary, then one line for each of the first problems; control characters are escaped. */
export function formatProblems(problems: readonly Problem[]): string {
  const lines = problems
    .slice(0, MAX_PRINTED)
    .map(({ path, message, origin }) =>
      `  ${path === '' ? '' : `${path}: `}${message}${origin === 'default' ? '' : ` (${origin})`}`.replace(
        /[\p{Cc}\u2028\u2029]/gu,
        (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
      ),
    )
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  const more = problems.length > MAX_PRINTED ? [`  and ${problems.length - MAX_PRINTED} more`] : []
  return [`the configuration has ${count}:`, ...lines, ...more].join('\n')
}

/** The comparison takes time quadratic in the length. */
const MAX_NAME_LENGTH = 64

/** The candidate with the most similar spelling, case and separators aside; undefined if none is close. */
export function nearest(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > MAX_NAME_LENGTH) return undefined
  const plain = (text: string) => text.toLowerCase().replace(/[._-]/g, '')
  const given = plain(name)
  const distances = candidates.map((candidate) => editDistance(given, plain(candidate)))
  const least = Math.min(...distances)
  if (least <= given.length / 3) return candidates[distances.indexOf(least)]
  const begun = candidates.filter((candidate) => plain(candidate).startsWith(given))
  return given.length >= 3 && begun.length === 1 ? begun[0] : undefined
}

/** Optimal string alignment distance: a swap of neighbors is one edit. */
function editDistance(a: string, b: string): number {
  let above: number[] = []
  let row = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let i = 1; i <= a.length; i++) {
    const beforeSwap = above
    above = row
    row = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = Number(above[j - 1]) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swapped = isSwap ? Number(beforeSwap[j - 2]) + 1 : replaced
      row.push(Math.min(replaced, swapped, Number(above[j]) + 1, Number(row[j - 1]) + 1))
    }
  }
  return Number(row.at(-1))
}
