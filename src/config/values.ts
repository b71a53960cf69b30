/**
 * The kinds of value a setting can have.
 *
 * Each says what it wants in one phrase that never repeats what it was given; the phrase is the error message
 * and the documentation.
 *
 * @module
 */
import { isIP } from 'node:net'
import { z } from 'zod'

/** Node's timers hold at most 2^31 - 1 ms; a longer delay would fire at once. */
const LONGEST_TIMER_SECONDS = 2_147_483

/** Makes the error texts of one kind; a member that is not there at all is told so. */
function saying(wants: string): { error: (issue: { readonly input?: unknown }) => string } {
  return { error: ({ input }) => (input === undefined ? `is missing; ${wants}` : wants) }
}

/** A whole number within bounds, both included. */
export function whole(least: number, most: number, wants = `must be an integer from ${least} to ${most}`) {
  const says = saying(wants)
  return z.int(says).min(least, says).max(most, says)
}

/** A whole number from 1, or `auto`. */
export function wholeOrAuto(most: number) {
  const wants = `must be an integer from 1 to ${most}, or 'auto'`
  return z.union([whole(1, most, wants), z.literal('auto', wants)], wants)
}

/** A time in seconds that a timer will count: decimals allowed, at least a millisecond unless 0 has a meaning. */
export function seconds(least: 0 | 0.001 = 0.001) {
  const says = saying(`must be a number of seconds from ${least} to ${LONGEST_TIMER_SECONDS}`)
  return z.number(says).min(least, says).max(LONGEST_TIMER_SECONDS, says)
}

/** True or false; no other spelling. */
export function yesOrNo() {
  return z.boolean(saying('must be true or false'))
}

/** One of a few words. */
export function oneOf<const Words extends readonly [string, ...string[]]>(words: Words) {
  return z.enum(words, saying(`must be one of: ${words.join(', ')}`))
}

/** A text that is not empty and has no control characters. */
export function text() {
  const says = saying(
    'must be text (in quotes if it looks like a number): 1 to 1024 characters, none of them control characters',
  )
  return z
    .string(says)
    .min(1, says)
    .max(1024, says)
    .regex(/^[^\u0000-\u001f\u007f-\u009f]*$/, says)
}

/** The path of a file or directory, taken as given: relative to the working directory. */
export function filePath() {
  const says = saying('must be a path: 1 to 4096 characters, none of them control characters')
  return z
    .string(says)
    .min(1, says)
    .max(4096, says)
    .regex(/^[^\u0000-\u001f\u007f-\u009f]*$/, says)
}

/** What a socket can listen on. */
export function listenHost() {
  const says = saying(
    'must be an IP address without brackets, or a host name; the port is a setting of its own',
  )
  return z.string(says).refine((host) => /^[A-Za-z0-9._-]+$/.test(host) || isIP(host) !== 0, says)
}

/** A TCP port; 0 lets the system choose. */
export function port() {
  return whole(0, 65535)
}

/**
 * The beginning of a request target: raw bytes as they come off the wire, before any `?`. Non-ASCII never
 * stands in a request target unencoded (RFC 9112, section 3.2), so it could never match.
 */
export function pathPrefix() {
  const says = saying("must be a path that begins with '/', percent-encoded, without '?', '#' and spaces")
  return z.string(says).regex(/^\/[!"$->@-~]*$/, says)
}

/** A prefix that may be empty and does not end with `/`. */
export function basePath() {
  const says = saying(
    "must be '' or a path that begins with '/' and does not end with '/', without '?', '#' and spaces",
  )
  return z.string(says).regex(/^(?:\/[!"$->@-~]*[!"$-.0->@-~])?$/, says)
}

/** A request path compared byte for byte; `*` is refused because it would look like a pattern. */
export function exactPath() {
  const says = saying(
    "must be an exact path that begins with '/', percent-encoded, without '?', '#', '*' and spaces (no patterns)",
  )
  return z.string(says).regex(/^\/[!"$-)+->@-~]*$/, says)
}

/**
 * A request method that can be forwarded (RFC 9110, section 9.1). Methods are case-sensitive: `get` is a token
 * but no request would ever match it.
 */
export function forwardedMethod() {
  const says = saying('must be a request method in upper case, other than CONNECT and TRACE')
  return z.string(says).regex(/^(?!(?:CONNECT|TRACE)$)[A-Z0-9!#$%&'*+.^_`|~-]+$/, says)
}

/** The address of a JWK Set. A user name or password would be a secret outside a file. */
export function httpUrl() {
  const says = saying('must be an http: or https: URL without a user name, password or fragment')
  return z.string(says).refine((url) => {
    if (!/^https?:\/\/[^\s\\#\p{Cc}]+$/iu.test(url) || !URL.canParse(url)) return false
    const { username, password } = new URL(url)
    return username === '' && password === ''
  }, says)
}

/** A single IP address or a CIDR range. */
export function addressRange() {
  const says = saying('must be an IP address or a CIDR range such as 10.0.0.0/8 or fd00::/8')
  return z.string(says).refine(isAddressRange, says)
}

function isAddressRange(range: string): boolean {
  const [address = '', bits, ...rest] = range.split('/')
  const version = isIP(address)
  if (version === 0 || address.includes('%') || rest.length > 0) return false // a zone means one host's link
  if (bits === undefined) return true
  return /^(?:0|[1-9]\d{0,2})$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128)
}

/** A web origin as browsers send it (RFC 6454, section 6.2), or `*` for all. */
export function origin() {
  const says = saying(
    "must be '*' or an origin in lower case such as https://app.example:8443, without a path and without the scheme's default port",
  )
  return z.string(says).refine((value) => {
    if (value === '*') return true
    if (!/^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[1-9]\d{0,4})?$/.test(value))
      return false
    return URL.canParse(value) && (!/^https?:/.test(value) || new URL(value).origin === value)
  }, says)
}

/** One of a few numbers. */
export function oneOfNumbers<const Numbers extends readonly [number, ...number[]]>(numbers: Numbers) {
  return z.literal(numbers, saying(`must be one of: ${numbers.join(', ')}`))
}
