/**
 * Problems of the configuration, in words for its author. A problem names the setting, what it must be and where the
 * wrong value stands. It never repeats the value, which may be a secret in the wrong place.
 */

/** One mistake in the settings. */
export interface Problem {
  /** The setting (`upstreams[0].url`), or '' where the mistake concerns a whole source. */
  readonly path: string
  /** Plain words, one line, no value. */
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where no source gave a value. */
  readonly origin: string
}

/** A problem of a setting whose file cannot be used: the message names the file, which is the place to look. */
export function fileProblem(path: string, message: string): Problem {
  return { path, message, origin: 'default' }
}

/** A summary, then one line for each problem. */
export function formatProblems(problems: readonly Problem[]): string {
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  return [`the configuration has ${count}:`, ...problems.map((one) => `  ${formatProblem(one)}`)].join('\n')
}

/** One problem as one line; control characters are escaped. */
export function formatProblem({ path, message, origin }: Problem): string {
  const line = `${path === '' ? '' : `${path}: `}${message}${origin === 'default' ? '' : ` (${origin})`}`
  return line.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Longer names are no typing mistakes, and the comparison grows with the square of the length. */
const MAX_NAME_LENGTH = 64

/**
 * The candidate that is spelled most like `name`, or undefined when none is close. Case and the separators
 * `.`, `_` and `-` do not count; the beginning of exactly one candidate is enough.
 */
export function nearest(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > MAX_NAME_LENGTH) return undefined
  const plain = (text: string) => text.toLowerCase().replace(/[._-]/g, '')
  const given = plain(name)
  let best: { readonly candidate?: string; readonly distance: number } = {
    distance: Math.floor(given.length / 3) + 1,
  }
  for (const candidate of candidates) {
    const distance = editDistance(given, plain(candidate))
    if (distance < best.distance) best = { candidate, distance }
  }
  if (best.candidate !== undefined || given.length < 3) return best.candidate
  const begun = candidates.filter((candidate) => plain(candidate).startsWith(given))
  return begun.length === 1 ? begun[0] : undefined
}

/** Edits between two words, where a swap of neighbors is one edit (optimal string alignment). */
function editDistance(a: string, b: string): number {
  let rows: readonly (readonly number[])[] = [[], Array.from({ length: b.length + 1 }, (_, column) => column)]
  const at = (row: number, column: number) => rows[row]?.[column] ?? Number.POSITIVE_INFINITY
  for (let i = 1; i <= a.length; i++) {
    const current = [i]
    for (let j = 1; j <= b.length; j++) {
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const substituted = at(1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const edits = [Number(current[j - 1]) + 1, at(1, j) + 1, substituted]
      current.push(Math.min(...edits, swapped ? at(0, j - 2) + 1 : Number.POSITIVE_INFINITY))
    }
    rows = [rows[1] ?? [], current]
  }
  return at(1, b.length)
}
