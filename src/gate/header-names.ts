/**
 * Which header names mean something to us.
 *
 * In: a field name as the client spelled it. Out: what we must do about it. A name is judged the way a careless
 * upstream would read it: lower-cased, with whatever is neither letter nor digit read as `-`, because a name that
 * only looks like `Content-Length` or like one of ours is an attack, not a header (CVE-2025-64484). CGI and WSGI
 * fold `_` so (RFC 3875, section 4.1.18), PHP `.` too, and lighttpd every such character.
 *
 * @module
 */
import { ownText } from '../own-text.ts'

/** What a field name is to us. Numbers, because every header of every request is switched on them. */
export const HeaderKind = {
  /** Means nothing to us: passes byte for byte. */
  other: 0,
  host: 1,
  contentLength: 2,
  transferEncoding: 3,
  authorization: 4,
  connection: 5,
  /** Hop-by-hop by definition, `Connection` aside (RFC 9110, section 7.6.1). */
  hopByHop: 6,
  upgrade: 7,
  expect: 8,
  requestId: 9,
  /** `Forwarded` or one of the four `X-Forwarded-*` that we set. */
  forwarded: 10,
  /** Begins with our own prefix `x-authenticated-`: never accepted from outside. */
  identity: 11,
  /** Reads like framing, `Authorization` or `Host` but is not: refused. */
  lookAlike: 12,
  /** Reads like a header that we set, spelled otherwise: removed. */
  spoof: 13,
  trailer: 14,
} as const

/** One of the values of {@link HeaderKind}. */
export type HeaderKind = (typeof HeaderKind)[keyof typeof HeaderKind]

/** The prefix of every identity header, lower-cased. */
export const IDENTITY_PREFIX = 'x-authenticated-'

const KNOWN: ReadonlyMap<string, HeaderKind> = new Map([
  ['host', HeaderKind.host],
  ['content-length', HeaderKind.contentLength],
  ['transfer-encoding', HeaderKind.transferEncoding],
  ['authorization', HeaderKind.authorization],
  ['connection', HeaderKind.connection],
  ['keep-alive', HeaderKind.hopByHop],
  ['proxy-connection', HeaderKind.hopByHop],
  // Meant for the next proxy, which we are (RFC 9110, section 11.7.2).
  ['proxy-authorization', HeaderKind.hopByHop],
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
])

/** Names we set ourselves: a look-alike is dropped, since the real one is always there. */
const SET_BY_US: ReadonlySet<HeaderKind> = new Set([HeaderKind.forwarded, HeaderKind.requestId])

/**
 * Names that decide where a request ends, whose it is and whom it is for: whoever reads a look-alike as one of them
 * reads another request than we did. Look-alikes of the others are metadata as far as anybody can tell, and pass.
 */
const DECISIVE: ReadonlySet<HeaderKind> = new Set([
  HeaderKind.host,
  HeaderKind.contentLength,
  HeaderKind.transferEncoding,
  HeaderKind.authorization,
])

/** Judged spellings. Clients repeat theirs, so a lookup replaces the folding; bounded, as spellings are theirs to choose. */
const judged = new Map<string, HeaderKind>()
const MAX_JUDGED = 2048

/**
 * What a header name is to us.
 *
 * @param name - a field name in any case, as it stood on the wire
 */
export function headerKind(name: string): HeaderKind {
  const known = judged.get(name)
  if (known !== undefined) return known
  const kind = judge(name)
  if (judged.size < MAX_JUDGED && name.length <= 64) judged.set(ownText(name), kind)
  return kind
}

function judge(name: string): HeaderKind {
  const lower = name.toLowerCase()
  const known = KNOWN.get(lower)
  if (known !== undefined) return known
  const folded = lower.replace(/[^a-z0-9]/g, '-')
  if (folded.startsWith(IDENTITY_PREFIX)) return HeaderKind.identity
  // `Authorization_` and `-Host` fold to a name with a loose dash at its end: judged without it.
  const bare = folded.replace(/^-+|-+$/g, '')
  if (bare.startsWith(IDENTITY_PREFIX)) return HeaderKind.identity
  const imitated = KNOWN.get(bare)
  if (imitated === undefined) return HeaderKind.other
  if (DECISIVE.has(imitated)) return HeaderKind.lookAlike
  return SET_BY_US.has(imitated) ? HeaderKind.spoof : HeaderKind.other
}
