/** The kinds of values that only settings have, and the lists whose members are maps. */
import { isIP } from 'node:net'
import { z } from 'zod'
import { checkedText, integer, must, nameSchema } from '../base/values.ts'
import { isHost, isHttps, isLoopback } from '../http/hosts.ts'
import { PUBLIC_ALGORITHMS } from '../keys/key-ring.ts'
import { scopeProblem } from '../token/scopes.ts'

/** Node's timers hold at most 2^31 - 1 ms; a longer delay would fire at once. */
const MAX_TIMER_SECONDS = 2_147_483

/** `sun_path` of `struct sockaddr_un` on Linux has one byte more, for the closing NUL. */
const MAX_SOCKET_PATH_BYTES = 107

const matching = (pattern: RegExp, requirement: string) =>
  z.string(must(requirement)).regex(pattern, must(requirement))

const satisfying = (isValid: (text: string) => boolean, requirement: string) =>
  z.string(must(requirement)).refine(isValid, must(requirement))

export const timerSeconds = integer(1, MAX_TIMER_SECONDS)

/** The minimum is 1 ms, or 0 where 0 has a meaning. Waits for upstreams are checked each 100 ms. */
export function seconds(min: 0 | 0.001 = 0.001) {
  const requirement = must(`must be a number of seconds from ${min} to ${MAX_TIMER_SECONDS}`)
  return z.number(requirement).min(min, requirement).max(MAX_TIMER_SECONDS, requirement)
}

/** A part of a limit. 1: the whole of it. */
export const share = partOf('must be a number above 0, up to 1')

const RATIO = must('must be a number from 0 to 1')

/** A part that may also be nothing. */
export const ratio = z.number(RATIO).min(0, RATIO).max(1, RATIO)

function partOf(requirement: string) {
  return z.number(must(requirement)).gt(0, must(requirement)).max(1, must(requirement))
}

/** The lifetime of tokens that the API documents. */
export const API_TOKEN_SECONDS = 86_400

/** More than ten years is a typing mistake. */
export const tokenSeconds = integer(1, 315_360_000)

export const oneOf = <const Value extends string | number>(values: readonly Value[]) =>
  z.literal(values, must(`must be one of: ${values.join(', ')}`))

export const plainText = matching(
  /^[^\u0000-\u001f\u007f-\u009f]{1,1024}$/,
  'must be text (in quotes if it looks like a number): 1 to 1024 characters, none of them control characters',
)

export const optionalText = matching(
  /^[^\u0000-\u001f\u007f-\u009f]{0,128}$/,
  'must be text (in quotes if it looks like a number): at most 128 characters, none of them control characters',
)

/** The content of a quoted string (RFC 9110, section 5.6.4), of which nothing must be escaped. */
export const realm = matching(
  /^[ !#-[\]-~]{1,128}$/,
  'must be 1 to 128 printable ASCII characters, without quotes and backslashes',
)

/** Also of `--config` and other flags. A URL in place of its file may hold a password. */
export const filePath = matching(
  /^(?!.*:\/\/)[^\u0000-\u001f\u007f-\u009f]{1,4096}$/,
  'must be a path, no URL: 1 to 4096 characters, none of them control characters',
)

/** Empty: none. */
export const optionalFilePath = matching(
  /^(?!.*:\/\/)[^\u0000-\u001f\u007f-\u009f]{0,4096}$/,
  'must be a path, no URL, or empty: at most 4096 characters, none of them control characters',
)

export const listenHost = satisfying(
  (host) => /^[A-Za-z0-9._-]+$/.test(host) || isIP(host) !== 0,
  'must be an IP address without brackets, or a host name; the port is a setting of its own',
)

/** A request target holds no unencoded non-ASCII (RFC 9112, section 3.2). */
const pathPrefix = matching(
  /^\/[!"$->@-~]*$/,
  "must be a path that begins with '/', percent-encoded, without '?', '#' and spaces",
)

export const basePath = matching(
  /^(?:\/[!"$->@-~]*[!"$-.0->@-~])?$/,
  "must be '' or a path that begins with '/' and does not end with '/', without '?', '#' and spaces",
)

const exactPath = matching(
  /^\/[!"$-)+->@-~]*$/,
  "must be an exact path that begins with '/', percent-encoded, without '?', '#', '*' and spaces (no patterns)",
)

export const exactPaths = z.array(exactPath, 'must be a list of exact paths')

/**
 * A word of a scope (RFC 6749, section 3.3). Words of our own cannot be ignored: the token would allow more
 * than the client asked for.
 */
const ignoredScope = matching(
  /^(?!storage\.)[!#-[\]-~]{1,128}$/,
  'must be one word of a scope, without quotes and backslashes, that does not begin with storage.',
)

export const ignoredScopes = z.array(ignoredScope, 'must be a list of words of a scope')

/** Methods are case-sensitive (RFC 9110, section 9.1): `get` would never match a request. */
const forwardedMethod = matching(
  /^(?!(?:CONNECT|TRACE)$)[A-Z0-9!#$%&'*+.^_`|~-]+$/,
  'must be a request method in upper case, other than CONNECT and TRACE',
)

const HTTP_URL = 'must be an http: or https: URL without a user name, password or fragment'

/** A user name or password in a URL would be a secret in the settings. */
export const httpUrl = satisfying(isHttpUrl, HTTP_URL)

/** Empty: none. */
export const optionalHttpUrl = satisfying((url) => url === '' || isHttpUrl(url), `${HTTP_URL}, or empty`)

function isHttpUrl(url: string): boolean {
  if (!/^https?:\/\/[^\s\\#\p{Cc}]+$/iu.test(url) || !URL.canParse(url)) {
    return false
  }
  const { username, password } = new URL(url)
  return username === '' && password === ''
}

/** A token is sent to it, and what comes back decides on tokens. */
export const secureUrl = satisfying(
  (url) => isHttpUrl(url) && (isHttps(url) || isLoopback(new URL(url).hostname)),
  'must be an https: URL without a user name, password or fragment; http: only to this machine',
)

/** A zone (`%eth0`) names a link of one host, and is refused. */
export const addressRange = satisfying((range) => {
  const [address = '', bits = '0', ...rest] = range.split('/')
  const maxBits = isIP(address) === 4 ? 32 : 128
  if (isIP(address) === 0 || address.includes('%') || rest.length > 0) {
    return false
  }
  return /^(?:0|[1-9]\d{0,2})$/.test(bits) && Number(bits) <= maxBits
}, 'must be an IP address or a CIDR range such as 10.0.0.0/8 or fd00::/8')

export const scopeHost = satisfying(
  (value) => value === '*' || isHost(value),
  "must be a host as clients send it in Host, such as storage.example or storage.example:8443, or '*'",
)

/** Browsers send an origin in this form (RFC 6454, section 6.2). */
export const webOrigin = satisfying((value) => {
  if (value === '*') {
    return true
  }
  const shape = /^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[1-9]\d{0,4})?$/
  if (!shape.test(value) || !URL.canParse(value)) {
    return false
  }
  return !/^https?:/.test(value) || new URL(value).origin === value
}, "must be '*' or an origin in lower case such as https://app.example:8443, without a path and without the scheme's default port")

export const strictMap = <Shape extends z.core.$ZodLooseShape>(requirement: string, shape: Shape) =>
  z.strictObject(shape, { error: ({ code }) => (code === 'invalid_type' ? requirement : undefined) })

/** Runs a check on invalid input of any shape, too, so that all mistakes are reported at once. */
export const RUN_ALWAYS = { when: () => true }

/** The request target passes untouched, so the sidecar would ignore a path, query or fragment of the URL. */
const upstreamUrl = satisfying((url) => {
  const socket = /^unix:(\/[^/\s\p{Cc}\\?#][^\s\p{Cc}\\?#]*)$/u.exec(url)?.[1]
  if (socket !== undefined) {
    return !socket.endsWith('/') && Buffer.byteLength(socket) <= MAX_SOCKET_PATH_BYTES
  }
  if (!/^https?:\/\/[^\s\p{Cc}\\/?#@]+(?<!:0*)\/?$/iu.test(url) || !URL.canParse(url)) {
    return false
  }
  // The URL standard allows braces in a host: an unexpanded template would pass.
  return /^(?:[a-z0-9._-]+|\[.*\])$/.test(new URL(url).hostname)
}, `must be http://host:port, https://host:port or unix:/absolute/path (at most ${MAX_SOCKET_PATH_BYTES} bytes), without a user name, path below the host, query, fragment and spaces`)

const UPSTREAM = 'must be a map such as { prefix: /, url: http://127.0.0.1:9000 }'

const upstream = strictMap(UPSTREAM, {
  prefix: pathPrefix.describe('Paths that it serves; the longest prefix wins, on segment boundaries.'),
  url: upstreamUrl.describe('Where it is: http://host:port, https://host:port or unix:/absolute/path.'),
  caFile: filePath.optional().describe('PEM file of the CAs that sign its certificate.'),
  certFile: filePath.optional().describe('PEM file of the client certificate that it receives.'),
  keyFile: filePath.optional().describe('PEM file of the private key of certFile.'),
  assertionAudience: plainText.optional().describe('Claim aud of its assertions, if not that of all.'),
}).superRefine((upstream, context) => {
  if (!(upstream instanceof Object)) {
    return
  }
  const { url, certFile, keyFile } = upstream
  const report = (key: string, message: string) => context.addIssue({ code: 'custom', path: [key], message })
  for (const file of ['caFile', 'certFile', 'keyFile'] as const) {
    if (upstream[file] !== undefined && !isHttps(String(url))) {
      report(file, 'needs a url that begins with https:')
    }
  }
  if (certFile !== undefined && keyFile === undefined) {
    report('certFile', 'needs keyFile beside it')
  }
  if (keyFile !== undefined && certFile === undefined) {
    report('keyFile', 'needs certFile beside it')
  }
}, RUN_ALWAYS)

export const upstreams = z.array(upstream, `must be a list; each member ${UPSTREAM}`)

const TRUSTED_ISSUER =
  'must be a map such as { issuer: https://idp.example, jwksUrl: https://idp.example/keys, audience: storage-api, accountPrefix: "idp:" }'
const ACCOUNTS = 'must be a map from values of accessKeyClaim to account identifiers'
const REQUIRED_CLAIMS = 'must be a map from claims to a text, a number, true or false'

const claimValue = z.union([z.string(), z.number(), z.boolean()], REQUIRED_CLAIMS)

/** Refuses `__proto__`, which zod leaves out of a record silently: a required claim would not be checked. */
const mapWithoutProto = z
  .any()
  .refine((map) => !(map instanceof Object && Object.hasOwn(map, '__proto__')), 'must not contain __proto__')
  .meta({ type: 'object' })

const trustedIssuer = strictMap(TRUSTED_ISSUER, {
  issuer: plainText.describe('Claim iss of its tokens.'),
  jwksUrl: httpUrl.describe('URL of its JWK Set.'),
  caFile: filePath.optional().describe('PEM file of the CAs that sign the certificate of that URL.'),
  bearerTokenFile: filePath.optional().describe('File with the token that is sent to that URL.'),
  audience: plainText.describe('Must be in the claim aud.'),
  algorithms: z
    .array(oneOf(PUBLIC_ALGORITHMS), 'must be a list of algorithms')
    .min(1, 'must have at least one algorithm')
    .default(['RS256', 'ES256'])
    .describe('Accepted algorithms.'),
  accessKeyClaim: plainText.default('sub').describe('The claim that becomes the access key.'),
  accounts: mapWithoutProto
    .pipe(z.record(nameSchema, nameSchema, must(ACCOUNTS)))
    .optional()
    .describe('The account for each value of that claim.'),
  accountPrefix: plainText.optional().describe('Instead of accounts: prefix and value are the account.'),
  scope: checkedText(scopeProblem).optional().describe('Restricts every token of this issuer.'),
  requiredClaims: mapWithoutProto
    .pipe(z.record(z.string(), claimValue, must(REQUIRED_CLAIMS)))
    .default({})
    .describe('Claims with the value that each must equal or, in an array, contain.'),
  maxLifetimeSeconds: tokenSeconds.default(API_TOKEN_SECONDS).describe('Longest accepted exp - iat.'),
}).superRefine((entry, context) => {
  if (!(entry instanceof Object)) {
    return
  }
  const report = (key: string, message: string) => context.addIssue({ code: 'custom', path: [key], message })
  const { accounts, accountPrefix, caFile, jwksUrl } = entry
  if ((accounts === undefined) === (accountPrefix === undefined)) {
    report('accounts', 'must be set, or accountPrefix, and not both')
  }
  if (caFile !== undefined && !isHttps(String(jwksUrl))) {
    report('caFile', 'needs a jwksUrl that begins with https:')
  }
}, RUN_ALWAYS)

export const trustedIssuers = z.array(trustedIssuer, `must be a list; each member ${TRUSTED_ISSUER}`)

const ROUTE = 'must be a map such as { method: GET, path: /healthz }'

const publicRoute = strictMap(ROUTE, {
  method: forwardedMethod.describe('Exact method.'),
  path: exactPath.describe('Exact path, without query.'),
})

export const publicRoutes = z.array(publicRoute, `must be a list; each member ${ROUTE}`)
