/**
 * Rules for the values that settings,
 * credentials, revocations and keys have in common, and schemas of these values.
 * Each rule states its requirement in one phrase, which is both the error message and the documentation.
 * The phrase follows the name of the field. It never quotes the value, which may be a misplaced secret.
 */
import { z } from 'zod'

const MAX_FIELD_CODE_POINTS = 1024

/** Nothing is trimmed or normalized: every code point of a secret matters. */
export function textProblem(text: string): string | undefined {
  // A code point is one or two UTF-16 units. The first bound is cheap: a very long text is not counted.
  const tooLong = text.length > 2 * MAX_FIELD_CODE_POINTS || [...text].length > MAX_FIELD_CODE_POINTS
  if (text === '' || tooLong) {
    return `must be 1 to ${MAX_FIELD_CODE_POINTS} characters long`
  }
  // A lone surrogate has no UTF-8 form: encoders replace it, and two different texts become one.
  if (!text.isWellFormed()) {
    return 'must be well-formed Unicode'
  }
  return undefined
}

/** A name becomes a claim, a header value and a part of a log line. */
export const nameProblem = (text: string): string | undefined =>
  textProblem(text) ?? (/\p{Cc}/u.test(text) ? 'must not hold control characters' : undefined)

/** All other claims and an RSA-4096 signature fit into the rest of a token's 8 KiB. */
const MAX_CLAIMS_BYTES = 5120

export function claimsProblem(accountId: string, accessKey: string, scope = ''): string | undefined {
  const escaped = [accountId, accessKey, scope].map((name) => JSON.stringify(name).slice(1, -1))
  const bytes = Buffer.byteLength(escaped.join(''))
  const parts = scope === '' ? 'account and access key' : 'account, access key and scope'
  if (bytes <= MAX_CLAIMS_BYTES) {
    return undefined
  }
  return `must be shorter: ${parts} together may have ${MAX_CLAIMS_BYTES} bytes in UTF-8`
}

const DATE_TIME =
  /^(\d{4}-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/** Returns epoch milliseconds. The year must have four digits (RFC 3339), also in UTC. */
export function parseTime(text: string): number | undefined {
  // RFC 3339 allows `t` and `z`.
  const [time = '', date = ''] = DATE_TIME.exec(text.toUpperCase()) ?? []
  // `Date` takes 30 February for 2 March.
  const isInCalendar = new Date(date).toJSON()?.startsWith(date)
  const milliseconds = isInCalendar ? Date.parse(time) : Number.NaN
  return new Date(milliseconds).toJSON()?.length === 24 ? milliseconds : undefined
}

const TIME = 'must be an RFC 3339 time with its zone, in UTC before the year 10000: 2027-12-31T23:59:59Z'
export const timeProblem = (text: string) => (parseTime(text) === undefined ? TIME : undefined)

export const must = (requirement: string): { error: (issue: { readonly input?: unknown }) => string } => ({
  error: ({ input }) => (input === undefined ? `is missing; ${requirement}` : requirement),
})

export const integer = (min: number, max: number, requirement = `must be an integer from ${min} to ${max}`) =>
  z
    .int({ ...must(requirement), abort: true }) // else a number that is far too large has two problems
    .min(min, must(requirement))
    .max(max, must(requirement))

export const boolean = z.boolean(must('must be true or false'))

const string = z.string({
  error: ({ input }) =>
    typeof input === 'number' || typeof input === 'boolean'
      ? `must be a string: quote it (YAML reads it as a ${typeof input})`
      : must('must be a string').error({ input }),
})

export const checkedText = (problemOf: (value: string) => string | undefined) =>
  string.superRefine((value, context) => {
    const problem = problemOf(value)
    if (problem !== undefined) {
      context.addIssue(problem)
    }
  })

export const nameSchema = checkedText(nameProblem)

export const timeSchema = checkedText(timeProblem).transform((text) => Number(parseTime(text)))
