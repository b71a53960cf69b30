/**
 * Rules for values, and schemas of the values in settings, credentials, revocations and keys.
 * Each rule states its requirement in one phrase, which is both the error message and the documentation.
 * The phrase follows the name of the field. It never quotes the value, which may be a misplaced secret.
 */
import { isIP } from 'node:net'
import { z } from 'zod'

const MAX_FIELD_CODE_POINTS = 1024

/** Nothing is trimmed or normalized: every code point of a secret matters. */
export function secretProblem(text: string): string | undefined {
  // A code point is one or two UTF-16 units. The first bound is cheap: a very long text is not counted.
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

/** Node's timers hold at most 2^31 - 1 ms; a longer delay would fire at once. */
export const MAX_TIMER_SECONDS = 2_147_483

/** `sun_path` of `struct sockaddr_un` on Linux has one byte more, for the closing NUL. */
const MAX_SOCKET_PATH_BYTES = 107

export function must(requirement: string): { error: (issue: { readonly input?: unknown }) => string } {
  return { error: ({ input }) => (input === undefined ? `is missing; ${requirement}` : requirement) }
}

function matching(pattern: RegExp, requirement: string) {
  return z.string(must(requirement)).regex(pattern, must(requirement))
}

function satisfying(isValid: (text: string) => boolean, requirement: string) {
  return z.string(must(requirement)).refine(isValid, must(requirement))
}

export function integer(min: number, max: number, requirement = `must be an integer from ${min} to ${max}`) {
  return z.int(must(requirement)).min(min, must(requirement)).max(max, must(requirement))
}

export function integerOrAuto(max: number) {
  const requirement = `must be an integer from 1 to ${max}, or 'auto'`
  return z.union([integer(1, max, requirement), z.literal('auto', requirement)], requirement)
}

/** The minimum is 1 ms, as timers count milliseconds, or 0 where 0 has a meaning. */
export function seconds(min: 0 | 0.001 = 0.001) {
  const requirement = must(`must be a number of seconds from ${min} to ${MAX_TIMER_SECONDS}`)
  return z.number(requirement).min(min, requirement).max(MAX_TIMER_SECONDS, requirement)
}

/** The lifetime of tokens that the API documents. */
export const API_TOKEN_SECONDS = 86_400

/** More than ten years is a typing mistake. */
export const tokenSeconds = integer(1, 315_360_000)

export const boolean = z.boolean(must('must be true or false'))

export function oneOf<const Value extends string | number>(values: readonly Value[]) {
  return z.literal(values, must(`must be one of: ${values.join(', ')}`))
}

const string = z.string({
  error: ({ input }) =>
    typeof input === 'number' || typeof input === 'boolean'
      ? `must be a string: quote it (YAML reads it as a ${typeof input})`
      : must('must be a string').error({ input }),
})

export const checkedText = (problemOf: (value: string) => string | undefined) =>
  string.superRefine((value, context) => {
    const problem = problemOf(value)
    if (problem !== undefined) context.addIssue(problem)
  })

export const nameSchema = checkedText(nameProblem)

export const timeSchema = checkedText(timeProblem).transform((text) => Number(parseTime(text)))

export const plainText = matching(
  /^[^\u0000-\u001f\u007f-\u009f]{1,1024}$/,
  'must be text (in quotes if it looks like a number): 1 to 1024 characters, none of them control characters',
)

export const filePath = matching(
  /^[^\u0000-\u001f\u007f-\u009f]{1,4096}$/,
  'must be a path: 1 to 4096 characters, none of them control characters',
)

export const listenHost = satisfying(
  (host) => /^[A-Za-z0-9._-]+$/.test(host) || isIP(host) !== 0,
  'must be an IP address without brackets, or a host name; the port is a setting of its own',
)

/** A request target holds no unencoded non-ASCII (RFC 9112, section 3.2). */
export const pathPrefix = matching(
  /^\/[!"$->@-~]*$/,
  "must be a path that begins with '/', percent-encoded, without '?', '#' and spaces",
)

export const basePath = matching(
  /^(?:\/[!"$->@-~]*[!"$-.0->@-~])?$/,
  "must be '' or a path that begins with '/' and does not end with '/', without '?', '#' and spaces",
)

export const exactPath = matching(
  /^\/[!"$-)+->@-~]*$/,
  "must be an exact path that begins with '/', percent-encoded, without '?', '#', '*' and spaces (no patterns)",
)

/** Methods are case-sensitive (RFC 9110, section 9.1): `get` would never match a request. */
export const forwardedMethod = matching(
  /^(?!(?:CONNECT|TRACE)$)[A-Z0-9!#$%&'*+.^_`|~-]+$/,
  'must be a request method in upper case, other than CONNECT and TRACE',
)

/** A user name or password in a URL would be a secret in the settings. */
export const httpUrl = satisfying((url) => {
  if (!/^https?:\/\/[^\s\\#\p{Cc}]+$/iu.test(url) || !URL.canParse(url)) return false
  const { username, password } = new URL(url)
  return username === '' && password === ''
}, 'must be an http: or https: URL without a user name, password or fragment')

/** A zone (`%eth0`) names a link of one host, and is refused. */
export const addressRange = satisfying((range) => {
  const [address = '', bits = '0', ...rest] = range.split('/')
  const maxBits = isIP(address) === 4 ? 32 : 128
  if (isIP(address) === 0 || address.includes('%') || rest.length > 0) return false
  return /^(?:0|[1-9]\d{0,2})$/.test(bits) && Number(bits) <= maxBits
}, 'must be an IP address or a CIDR range such as 10.0.0.0/8 or fd00::/8')

/** Browsers send an origin in this form (RFC 6454, section 6.2). */
export const webOrigin = satisfying((value) => {
  if (value === '*') return true
  const shape = /^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[1-9]\d{0,4})?$/
  if (!shape.test(value) || !URL.canParse(value)) return false
  return !/^https?:/.test(value) || new URL(value).origin === value
}, "must be '*' or an origin in lower case such as https://app.example:8443, without a path and without the scheme's default port")

/** Unknown members are errors. */
export function strictMap<Shape extends z.core.$ZodLooseShape>(requirement: string, shape: Shape) {
  return z.strictObject(shape, { error: ({ code }) => (code === 'invalid_type' ? requirement : undefined) })
}

/** Runs a check on invalid input of any shape, too, so that all mistakes are reported at once. */
export const RUN_ALWAYS = { when: () => true }

/** The request target passes untouched, so the sidecar would ignore a path, query or fragment of the URL. */
export const upstreamUrl = satisfying(
  isUpstreamUrl,
  `must be http://host:port, https://host:port or unix:/absolute/path (at most ${MAX_SOCKET_PATH_BYTES} bytes), without a user name, path below the host, query, fragment and spaces`,
)

function isUpstreamUrl(url: string): boolean {
  const socket = /^unix:(\/[^/\s\p{Cc}\\?#][^\s\p{Cc}\\?#]*)$/u.exec(url)?.[1]
  if (socket !== undefined) return !socket.endsWith('/') && Buffer.byteLength(socket) <= MAX_SOCKET_PATH_BYTES
  if (!/^https?:\/\/[^\s\p{Cc}\\/?#@]+(?<!:0*)\/?$/iu.test(url) || !URL.canParse(url)) return false
  // The URL standard allows braces in a host: an unexpanded template would pass.
  return /^(?:[a-z0-9._-]+|\[.*\])$/.test(new URL(url).hostname)
}
