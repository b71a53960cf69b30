/** Members of the credentials and the revocations file. Messages follow the path of a value. */
import { z } from 'zod'
import { must } from '../config/values.ts'
import { parseTime } from './credential.ts'

const STRING = must('must be a string')

const string = z.string({
  error: (issue) =>
    typeof issue.input === 'number' || typeof issue.input === 'boolean'
      ? `must be a string: quote it (YAML reads it as a ${typeof issue.input})`
      : STRING.error(issue),
})

/** A text without a problem. */
export const text = (problemOf: (value: string) => string | undefined) =>
  string.superRefine((value, context) => {
    const problem = problemOf(value)
    if (problem !== undefined) context.addIssue(problem)
  })

const TIME = 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'

/** Out: epoch milliseconds. */
export const time = text((value) => (parseTime(value) === undefined ? TIME : undefined)).transform(
  (value) => parseTime(value) ?? Number.NaN,
)
