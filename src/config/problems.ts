/** Problems of settings, and of the files that they name. */
import { printable } from '../log.ts'

export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a mistake of a complete source. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` if nothing sets the value. Absent if unknown. */
  readonly origin?: string
}

export const problemsAt = (path: string, messages: readonly string[]): readonly Problem[] =>
  messages.map((message) => ({ path, message }))

const MAX_PRINTED = 200 // more than there are settings

export function formatProblems(problems: readonly Problem[]): string {
  const lines = problems.slice(0, MAX_PRINTED).map(({ path, message, origin = 'default' }) => {
    const place = origin === 'default' ? '' : ` (${origin})`
    return printable(`  ${path === '' ? '' : `${path}: `}${message}${place}`)
  })
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  const more = problems.length > MAX_PRINTED ? [`  and ${problems.length - MAX_PRINTED} more`] : []
  return [`the configuration has ${count}:`, ...lines, ...more].join('\n')
}
