/**
 * Kinds of headers, by what they do to a request; the options of `Connection`; the token of `Authorization`.
 * In: a field name as received. Out: its kind. Names are folded as careless upstreams do: lower-cased, with `-` for
 * all but letters and digits (CVE-2025-64484; CGI, WSGI: `_`, RFC 3875 section 4.1.18; PHP: `.`; lighttpd: all).
 */
const NAMES = {
  host: ['host'],
  contentLength: ['content-length'],
  transferEncoding: ['transfer-encoding'],
  authorization: ['authorization'],
  connection: ['connection'],
  keepAlive: ['keep-alive'],
  upgrade: ['upgrade'],
  /** Others by definition (RFC 9110, section 7.6.1), and those for the next proxy, which is the sidecar (11.7). */
  hopByHop: ['proxy-connection', 'proxy-authorization', 'proxy-authenticate', 'te', 'http2-settings'],
  expect: ['expect'],
  trailer: ['trailer'],
  requestId: ['x-request-id'],
  forwarded: ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-forwarded-port'],
  /** Says whether the request may replace an object. */
  condition: ['if-none-match', 'overwrite'],
  /** Names a second object, which the request reads or writes. */
  secondPath: ['destination', 'x-amz-copy-source', 'x-goog-copy-source', 'x-ms-copy-source', 'x-copy-from'],
  /**
   * Makes another request of it: names another method, or a second object in a way that is not read here. So do names
   * that fold to one of the two kinds above, and `OTHER_SOURCE`. Any other header is trusted not to.
   */
  override: [
    ...['x-http-method-override', 'x-http-method', 'x-method-override'],
    ...['x-object-manifest', 'x-symlink-target', 'x-copy-from-account', 'destination-account'],
  ],
} as const

export type HeaderKind =
  | keyof typeof NAMES
  | 'identity'
  /** Folds to framing, `Authorization` or `Host`: refused. */
  | 'refusedLookAlike'
  /** Folds to a header that the sidecar sets: removed. */
  | 'removedLookAlike'
  /** Not a token (RFC 9110, section 5.6.2): in a request, Node's parser refuses it already. */
  | 'invalid'
  | 'other'

const KNOWN: ReadonlyMap<string, HeaderKind> = new Map(
  (Object.keys(NAMES) as (keyof typeof NAMES)[]).flatMap((kind) => NAMES[kind].map((name) => [name, kind])),
)

/** Two readings of them are two requests. */
const CRITICAL: readonly HeaderKind[] = ['host', 'contentLength', 'transferEncoding', 'authorization']

const IDENTITY_PREFIX = 'x-authenticated-'
/** As the storage services of several vendors name the object that they copy or rename: `x-oss-copy-source`. */
const OTHER_SOURCE = /-(?:copy|rename)-source$/

/** Folds to itself. */
const PLAIN_NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*$/
const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/

/** Linear in the name, which may be as long as `limits.headerBytes`. */
export function headerKind(name: string): HeaderKind {
  const lower = name.toLowerCase()
  const known = KNOWN.get(lower)
  if (known !== undefined) return known
  if (PLAIN_NAME.test(lower)) return unknownKind(lower)
  if (!TOKEN.test(name)) return 'invalid'
  // `Authorization_` and `-Host` fold to a name with dashes at its ends: looked up without them.
  const folded = lower.replace(/[^a-z0-9]/g, '-')
  let start = 0
  while (folded[start] === '-') start++
  if (folded.startsWith(IDENTITY_PREFIX, start)) return 'identity'
  let end = folded.length
  while (end > start && folded[end - 1] === '-') end--
  const trimmed = folded.slice(start, end)
  const kind = KNOWN.get(trimmed)
  if (kind === undefined) return unknownKind(trimmed)
  if (CRITICAL.includes(kind)) return 'refusedLookAlike'
  if (changesEffect(kind)) return 'override'
  return kind === 'forwarded' || kind === 'requestId' ? 'removedLookAlike' : 'other'
}

function unknownKind(folded: string): HeaderKind {
  if (folded.startsWith(IDENTITY_PREFIX)) return 'identity'
  return OTHER_SOURCE.test(folded) ? 'override' : 'other'
}

/** Whether it changes what the request does to which object. */
function changesEffect(kind: HeaderKind): boolean {
  return kind === 'condition' || kind === 'secondPath' || kind === 'override'
}

/** Names and values, alternating. */
export type HeaderList = readonly string[]

export function headerLines(headers: HeaderList): string {
  let lines = ''
  for (let at = 0; at < headers.length; at += 2) lines += `${headers[at]}: ${headers[at + 1]}\r\n`
  return lines
}

/** @param name - in lower case */
export function headerValues(rawHeaders: HeaderList, name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name)
}

/** Of `Connection` (RFC 9110, section 7.6.1), in lower case: `close` and the names of hop-by-hop fields among them. */
export type ConnectionOptions = ReadonlySet<string>

/** Shared: new sets for each request and response cost 0.5 µs and garbage (Node 26). */
const USUAL_CONNECTIONS: ReadonlyMap<string, ConnectionOptions> = new Map(
  ['keep-alive', 'close'].map((option) => [option, new Set([option])]),
)

/** `value`: of one line, or of several, joined by commas. */
export function parseConnection(value: string): ConnectionOptions {
  const usual = USUAL_CONNECTIONS.get(value)
  if (usual !== undefined) return usual
  const options = value.split(',').map((option) => option.trim().toLowerCase())
  return new Set(options.filter((option) => option !== ''))
}

/** Whether removing the named fields would change framing or identity. */
export function namesFramingOrIdentity(options: ConnectionOptions): boolean {
  for (const option of options) {
    const kind = headerKind(option)
    if (kind === 'identity' || kind === 'refusedLookAlike' || CRITICAL.includes(kind)) return true
  }
  return false
}

/** The trailers to forward: not those that the sidecar or one hop interprets (RFC 9110, section 6.5.1). */
export function forwardedTrailers(
  rawTrailers: readonly string[],
  options: ConnectionOptions | undefined,
): [name: string, value: string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    const kind = headerKind(name)
    const passes = kind === 'other' || changesEffect(kind)
    if (passes && !options?.has(name.toLowerCase())) trailers.push([name, rawTrailers[at + 1] as string])
  }
  return trailers
}

/** The token of `Authorization` behind the scheme, in any case, and spaces (RFC 6750, section 2.1). A list is no token. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.charCodeAt(6) !== 0x20) return undefined
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return undefined
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start < authorization.length ? authorization.slice(start) : undefined
}
