/**
 * Header names and the options of `Connection`, of requests and responses alike.
 * In: a field name as received. Out: its kind. Names are folded as careless upstreams do: lower-cased, with `-` for
 * all but letters and digits (CVE-2025-64484; CGI, WSGI: `_`, RFC 3875 section 4.1.18; PHP: `.`; lighttpd: all).
 */

/** The kind of a field name. Numbers, because every header of every request is switched on them. */
export const HeaderKind = {
  other: 0,
  host: 1,
  contentLength: 2,
  transferEncoding: 3,
  authorization: 4,
  connection: 5,
  /** By definition, `Connection` aside (RFC 9110, section 7.6.1). */
  hopByHop: 6,
  upgrade: 7,
  expect: 8,
  requestId: 9,
  forwarded: 10,
  identity: 11,
  /** Folds to framing, `Authorization` or `Host`: refused. */
  refusedLookAlike: 12,
  /** Folds to a header that the sidecar sets: removed. */
  removedLookAlike: 13,
  trailer: 14,
  /** Not a token (RFC 9110, section 5.6.2): in a request, Node's parser refuses it already. */
  invalid: 15,
  keepAlive: 16,
  /** With the next two, what a request needs of its caller's scope depends on it (`token/scopes.ts`). */
  condition: 17,
  secondPath: 18,
  /**
   * Names another method, or a second path or account that is not judged, or folds to one of the two kinds above: refused
   * where a scope restricts the caller. The list is of what storage services read; any other header is trusted to name none.
   */
  override: 19,
} as const

export type HeaderKind = (typeof HeaderKind)[keyof typeof HeaderKind]

const FRAMING_OR_AUTHORIZATION: ReadonlySet<HeaderKind> = new Set([
  ...[HeaderKind.host, HeaderKind.contentLength, HeaderKind.transferEncoding, HeaderKind.authorization],
])

const IDENTITY_PREFIX = 'x-authenticated-'

const KNOWN: ReadonlyMap<string, HeaderKind> = new Map([
  ['host', HeaderKind.host],
  ['content-length', HeaderKind.contentLength],
  ['transfer-encoding', HeaderKind.transferEncoding],
  ['authorization', HeaderKind.authorization],
  ['connection', HeaderKind.connection],
  ['keep-alive', HeaderKind.keepAlive],
  ['proxy-connection', HeaderKind.hopByHop],
  // Meant for the next proxy, which is the sidecar, or from it (RFC 9110, section 11.7).
  ['proxy-authorization', HeaderKind.hopByHop],
  ['proxy-authenticate', HeaderKind.hopByHop],
  ['te', HeaderKind.hopByHop],
  ['upgrade', HeaderKind.upgrade],
  ['http2-settings', HeaderKind.hopByHop],
  ['expect', HeaderKind.expect],
  ['trailer', HeaderKind.trailer],
  ['x-request-id', HeaderKind.requestId],
  ['x-forwarded-for', HeaderKind.forwarded],
  ['x-forwarded-host', HeaderKind.forwarded],
  ['x-forwarded-proto', HeaderKind.forwarded],
  ['x-forwarded-port', HeaderKind.forwarded],
  ['forwarded', HeaderKind.forwarded],
  ['if-none-match', HeaderKind.condition],
  ['overwrite', HeaderKind.condition],
  ['destination', HeaderKind.secondPath],
  ['x-amz-copy-source', HeaderKind.secondPath],
  ['x-goog-copy-source', HeaderKind.secondPath],
  ['x-ms-copy-source', HeaderKind.secondPath],
  ['x-copy-from', HeaderKind.secondPath],
  ['x-http-method-override', HeaderKind.override],
  ['x-http-method', HeaderKind.override],
  ['x-method-override', HeaderKind.override],
  ['x-amz-rename-source', HeaderKind.override],
  ['x-ms-rename-source', HeaderKind.override],
  ['x-copy-from-account', HeaderKind.override],
  ['destination-account', HeaderKind.override],
  ['x-object-manifest', HeaderKind.override],
  ['x-symlink-target', HeaderKind.override],
])

/**
 * Classified spellings: a lookup replaces the folding. Clients choose their spellings, so the table is emptied when it is
 * full: the usual names are back with the next heads. Node 20, 16 names: 0.4 µs, and 4 µs without the table.
 */
const classified = new Map<string, HeaderKind>()
const MAX_CLASSIFIED = 2048

export function headerKind(name: string): HeaderKind {
  const known = classified.get(name)
  if (known !== undefined) return known
  const kind = classify(name)
  if (name.length > 64) return kind
  if (classified.size === MAX_CLASSIFIED) classified.clear()
  classified.set(flatCopy(name), kind)
  return kind
}

const DASH = 0x2d

/** Linear in the name, which may be as long as `limits.headerBytes`. */
function classify(name: string): HeaderKind {
  const lower = name.toLowerCase()
  const known = KNOWN.get(lower)
  if (known !== undefined) return known
  if (!/^[!#$%&'*+.^_`|~\w-]+$/.test(name)) return HeaderKind.invalid
  // `Authorization_` and `-Host` fold to a name with dashes at its ends: looked up without them.
  const folded = lower.replace(/[^a-z0-9]/g, '-')
  let start = 0
  while (folded.charCodeAt(start) === DASH) start++
  if (folded.startsWith(IDENTITY_PREFIX, start)) return HeaderKind.identity
  let end = folded.length
  while (end > start && folded.charCodeAt(end - 1) === DASH) end--
  const kind = KNOWN.get(folded.slice(start, end))
  if (kind === undefined) return HeaderKind.other
  if (FRAMING_OR_AUTHORIZATION.has(kind)) return HeaderKind.refusedLookAlike
  if (isForScope(kind)) return HeaderKind.override
  const isSetBySidecar = kind === HeaderKind.forwarded || kind === HeaderKind.requestId
  return isSetBySidecar ? HeaderKind.removedLookAlike : HeaderKind.other
}

/** Whether the scope of a restricted caller depends on it. */
function isForScope(kind: HeaderKind): boolean {
  return kind === HeaderKind.condition || kind === HeaderKind.secondPath || kind === HeaderKind.override
}

/** The values of a header in a list of names and values. `name`: in lower case. */
export function headerValues(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name)
}

/**
 * Copies text of a head before a cache keeps it. V8 represents a slice by a reference to the text that it is a part of, and
 * a concatenation by a tree of its pieces: a cached token would keep the complete header line in memory, a name the head.
 * @param text - Latin-1, as Node decodes header fields
 */
export function flatCopy(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}

/** Of `Connection` (RFC 9110, section 7.6.1), in lower case: `close` and the names of hop-by-hop fields among them. */
export type ConnectionOptions = ReadonlySet<string>

/** The usual values, parsed once. */
const USUAL_CONNECTIONS: ReadonlyMap<string, ConnectionOptions> = new Map(
  ['keep-alive', 'close'].map((option) => [option, new Set([option])]),
)

/** `value`: of one line, or of several, joined by commas. */
export function parseConnection(value: string): ConnectionOptions {
  const usual = USUAL_CONNECTIONS.get(value)
  if (usual !== undefined) return usual
  const options = new Set<string>()
  for (const part of value.split(',')) {
    const option = part.trim().toLowerCase()
    if (option !== '') options.add(option)
  }
  return options
}

/** Whether removing the named fields would change framing or identity. */
export function namesFramingOrIdentity(options: ConnectionOptions): boolean {
  for (const option of options) {
    const kind = headerKind(option)
    if (kind === HeaderKind.identity || kind === HeaderKind.refusedLookAlike) return true
    if (FRAMING_OR_AUTHORIZATION.has(kind)) return true
  }
  return false
}

/**
 * The trailers to forward, as names and values: not those that the sidecar or one hop interprets (RFC 9110, section 6.5.1).
 * @param isScoped - a scope or a link restricts the caller: it was compared with the head, and an upstream may merge both
 */
export function forwardedTrailers(
  rawTrailers: readonly string[],
  options: ConnectionOptions | undefined,
  isScoped = false,
): [name: string, value: string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    const kind = headerKind(name)
    const passes = isForScope(kind) ? !isScoped : kind === HeaderKind.other
    if (passes && !options?.has(name.toLowerCase())) trailers.push([name, rawTrailers[at + 1] as string])
  }
  return trailers
}
