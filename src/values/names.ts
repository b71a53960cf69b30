/**
 * Rules for account names, access keys, secrets and times, wherever they come from, and their printed form. A function
 * `…Problem` returns what is wrong, in words that follow the name of the field and repeat no text, or undefined.
 */

const MAX_FIELD_CODE_POINTS = 1024

/** Nothing is trimmed or normalized: every code point of a secret matters. */
export function secretProblem(text: string): string | undefined {
  // A code point is one or two UTF-16 units: the cheap bound spares counting a long text.
  const tooLong = text.length > 2 * MAX_FIELD_CODE_POINTS || [...text].length > MAX_FIELD_CODE_POINTS
  if (text === '' || tooLong) return `must be 1 to ${MAX_FIELD_CODE_POINTS} characters long`
  // A lone surrogate has no UTF-8 form: encoders replace it, and two different texts become one.
  if (!text.isWellFormed()) return 'must be well-formed Unicode'
  return undefined
}

/** A name becomes a claim, a header value and a part of a log line. */
export function nameProblem(text: string): string | undefined {
  return secretProblem(text) ?? (/\p{Cc}/u.test(text) ? 'must not hold control characters' : undefined)
}

/** All other claims and an RSA-4096 signature fit into the rest of a token's 8 KiB. */
const MAX_CLAIMS_BYTES = 5120

export function claimsProblem(accountId: string, accessKey: string, scope = ''): string | undefined {
  const escaped = [accountId, accessKey, scope].map((name) => JSON.stringify(name).slice(1, -1))
  const bytes = Buffer.byteLength(escaped.join(''))
  const parts = scope === '' ? 'account and access key' : 'account, access key and scope'
  return bytes <= MAX_CLAIMS_BYTES
    ? undefined
    : `must be shorter: ${parts} together may have ${MAX_CLAIMS_BYTES} bytes in UTF-8`
}

const DATE_TIME =
  /^(\d{4}-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/** Returns epoch milliseconds. In UTC, RFC 3339 has years of four digits. */
export function parseTime(text: string): number | undefined {
  // RFC 3339 allows `t` and `z`.
  const [time = '', date = ''] = DATE_TIME.exec(text.toUpperCase()) ?? []
  // `Date` takes 30 February for 2 March.
  const isInCalendar = new Date(date).toJSON()?.startsWith(date)
  const milliseconds = isInCalendar ? Date.parse(time) : Number.NaN
  return new Date(milliseconds).toJSON()?.length === 24 ? milliseconds : undefined
}

export function timeProblem(text: string): string | undefined {
  const requirement =
    'must be an RFC 3339 time with its zone, in UTC before the year 10000: 2027-12-31T23:59:59Z'
  return parseTime(text) === undefined ? requirement : undefined
}

/** Escapes what controls a terminal, breaks a line or reverses text (CVE-2021-42574). */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
