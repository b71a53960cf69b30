/** What the files of credentials and of revocations have in common. Messages fit behind the path of a value. */
import { z } from 'zod'
import { parseTime } from './credential.ts'

/** What was expected, that it is missing, or that YAML reads an unquoted text as something else. */
export function expected(what: string) {
  return ({ input }: { readonly input?: unknown }) => {
    if (input === undefined) return 'is missing'
    const misread = what === 'a string' && (typeof input === 'number' || typeof input === 'boolean')
    return misread ? `must be a string: quote it (YAML reads it as a ${typeof input})` : `must be ${what}`
  }
}

/** A text without a problem. */
export const text = (problemOf: (value: string) => string | undefined) =>
  z.string({ error: expected('a string') }).superRefine((value, context) => {
    const problem = problemOf(value)
    if (problem !== undefined) context.addIssue(problem)
  })

const TIME = 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'

/** Out: epoch milliseconds. */
export const time = text((value) => (parseTime(value) === undefined ? TIME : undefined)).transform(
  (value) => parseTime(value) ?? Number.NaN,
)
