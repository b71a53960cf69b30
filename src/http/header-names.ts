/**
 * Classifies header names.
 * In: a field name as received. Out: its kind. Names are folded as careless upstreams do: lower-cased, with `-` for
 * all but letters and digits (CVE-2025-64484; CGI, WSGI: `_`, RFC 3875 section 4.1.18; PHP: `.`; lighttpd: all).
 */
import { ownCopy } from './own-copy.ts'

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
  droppedLookAlike: 13,
  trailer: 14,
  /** Not a token (RFC 9110, section 5.6.2): in a request, Node's parser refuses it already. */
  invalid: 15,
  keepAlive: 16,
  /** Decides what a request needs of its caller's scope (`token/scopes.ts`). */
  deciding: 17,
  /** Overrides the method, or folds to a name of the kind above: refused where a scope restricts the caller. */
  refusedIfScoped: 18,
} as const

export type HeaderKind = (typeof HeaderKind)[keyof typeof HeaderKind]

export const IDENTITY_PREFIX = 'x-authenticated-'

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
  ['if-none-match', HeaderKind.deciding],
  ['overwrite', HeaderKind.deciding],
  ['destination', HeaderKind.deciding],
  ['x-amz-copy-source', HeaderKind.deciding],
  ['x-goog-copy-source', HeaderKind.deciding],
  ['x-ms-copy-source', HeaderKind.deciding],
  ['x-copy-from', HeaderKind.deciding],
  ['x-http-method-override', HeaderKind.refusedIfScoped],
  ['x-http-method', HeaderKind.refusedIfScoped],
  ['x-method-override', HeaderKind.refusedIfScoped],
])

/** Classified spellings: a lookup replaces the folding. Bounded, because clients choose their spellings. */
const classified = new Map<string, HeaderKind>()
const MAX_CLASSIFIED = 2048

export function headerKind(name: string): HeaderKind {
  const known = classified.get(name)
  if (known !== undefined) return known
  const kind = classify(name)
  if (classified.size < MAX_CLASSIFIED && name.length <= 64) classified.set(ownCopy(name), kind)
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
  if (isFramingOrAuthorization(kind)) return HeaderKind.refusedLookAlike
  if (kind === HeaderKind.deciding || kind === HeaderKind.refusedIfScoped) return HeaderKind.refusedIfScoped
  const isSetBySidecar = kind === HeaderKind.forwarded || kind === HeaderKind.requestId
  return isSetBySidecar ? HeaderKind.droppedLookAlike : HeaderKind.other
}

export function isFramingOrAuthorization(kind: HeaderKind): boolean {
  return (
    kind === HeaderKind.host ||
    kind === HeaderKind.contentLength ||
    kind === HeaderKind.transferEncoding ||
    kind === HeaderKind.authorization
  )
}
