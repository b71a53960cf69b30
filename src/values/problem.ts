/** Problems of settings and their files. A message never repeats the value, which may be a misplaced secret. */
import { printable } from './names.ts'

export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a mistake of a complete source. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` where no source gave a value. */
  readonly origin: string
}

export const fileProblem = (path: string, message: string): Problem => ({ path, message, origin: 'default' })

const MAX_PRINTED = 20

export function formatProblems(problems: readonly Problem[]): string {
  const lines = problems
    .slice(0, MAX_PRINTED)
    .map(({ path, message, origin }) =>
      printable(`  ${path === '' ? '' : `${path}: `}${message}${origin === 'default' ? '' : ` (${origin})`}`),
    )
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  const more = problems.length > MAX_PRINTED ? [`  and ${problems.length - MAX_PRINTED} more`] : []
  return [`the configuration has ${count}:`, ...lines, ...more].join('\n')
}
