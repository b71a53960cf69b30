/**
 * What is wrong with the settings, in words for the person who wrote them.
 *
 * A problem names the setting, says what the setting wants and where the wrong value stands. It never repeats
 * the value: somebody will one day paste a secret into the wrong place.
 *
 * @module
 */

/** One mistake in the settings. */
export interface Problem {
  /** The setting (`upstreams[0].url`), or '' where the mistake concerns a whole source. */
  readonly path: string
  /** What the setting wants; plain words, one line, no value. */
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where nobody gave a value. */
  readonly origin: string
}

/** A problem of a setting whose file cannot be used: the message names the file, which is the place to look. */
export function fileProblem(path: string, message: string): Problem {
  return { path, message, origin: 'default' }
}

/** A step into a value: a member name or a list index. */
export type Step = string | number

/**
 * Writes a path the way the documentation does: `upstreams[0].url`. Names that are no plain words are quoted
 * and cut, as they may be anything.
 */
export function writePath(steps: readonly Step[]): string {
  let path = ''
  for (const step of steps) {
    if (typeof step === 'number') path += `[${step}]`
    else path += (path === '' ? '' : '.') + (/^[\w-]+$/.test(step) ? step : JSON.stringify(step)).slice(0, 80)
  }
  return path
}

/** Puts all problems into one text: a summary, then one line for each. */
export function formatProblems(problems: readonly Problem[]): string {
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  return [
    `the configuration has ${count}:`,
    ...problems.map((problem) => `  ${formatProblem(problem)}`),
  ].join('\n')
}

/** Puts one problem into one line. */
export function formatProblem({ path, message, origin }: Problem): string {
  const subject = path === '' ? '' : `${path}: `
  const place = origin === 'default' ? '' : ` (${origin})`
  return `${subject}${message}${place}`.replace(/[\p{Cc}\u2028\u2029]/gu, (character) =>
    JSON.stringify(character).length > 3
      ? JSON.stringify(character).slice(1, -1)
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
