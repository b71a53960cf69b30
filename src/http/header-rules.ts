/**
 * The rules for headers, by kind.
 * In: a field name as received. Out: its kind. Names are folded as careless upstreams do: lower-cased, with `-` for
 * all but letters and digits (CVE-2025-64484; CGI, WSGI: `_`, RFC 3875 section 4.1.18; PHP: `.`; lighttpd: all).
 */

/** What becomes of a line. `forward`: it is sent on, unless `Connection` names it. */
export interface Rule {
  /** `ifAllowed`: by the decision of the gate. `ifValid`: one id that is safe. `ifTrusted`: from a trusted proxy. */
  readonly request: 'forward' | 'remove' | 'refuse' | 'ifAllowed' | 'ifValid' | 'ifTrusted'
  /** `ifMayHaveBody`: by the status. `ifChunked`: if the client can receive trailers. `beforeLength`: sent before `Content-Length`. */
  readonly response: 'forward' | 'remove' | 'ifMayHaveBody' | 'ifChunked' | 'beforeLength'
  /** RFC 9110, section 6.5.1. `unlessDeciding`: a trailer that the gate has not seen must not change what it decided. */
  readonly trailer: 'forward' | 'remove' | 'unlessDeciding'
  /** The kind of another spelling of one of `names`, such as `content_length`. */
  readonly lookAlike: 'refusedLookAlike' | 'removedLookAlike' | 'otherRequest' | 'other'
  readonly names: readonly string[]
}

type Treatment = Partial<Omit<Rule, 'names'>>

/** Every rule has the same fields in the same order, which V8 reads fastest. `names`: separated by spaces. */
const rule = (names: string, treatment: Treatment): Rule => {
  const { request = 'forward', response = 'forward', trailer = 'remove', lookAlike = 'other' } = treatment
  return { request, response, trailer, lookAlike, names: names === '' ? [] : names.split(' ') }
}

const REMOVED: Treatment = { request: 'remove', response: 'remove' }
const DECIDING: Treatment = { trailer: 'unlessDeciding', lookAlike: 'otherRequest' }

/**
 * By default, a line is forwarded, but not as a trailer, and another spelling of its name is `other`.
 * A header that is not in this table, such as `X-Original-URL` or `X-Rewrite-URL`, is forwarded unread, as `other`: services
 * are trusted not to take a path or method from it.
 */
export const HEADER_RULES = {
  host: rule('host', { lookAlike: 'refusedLookAlike' }),
  contentLength: rule('content-length', { response: 'ifMayHaveBody', lookAlike: 'refusedLookAlike' }),
  /** A request's body keeps its framing. Node frames that of a response. */
  transferEncoding: rule('transfer-encoding', { response: 'remove', lookAlike: 'refusedLookAlike' }),
  authorization: rule('authorization', { request: 'ifAllowed', lookAlike: 'refusedLookAlike' }),
  contentDisposition: rule('content-disposition', { response: 'beforeLength', trailer: 'forward' }),
  connection: rule('connection', REMOVED),
  keepAlive: rule('keep-alive', REMOVED),
  upgrade: rule('upgrade', REMOVED),
  /** The other hop-by-hop headers (RFC 9110, section 7.6.1), and those for the next proxy, which is the sidecar (11.7). */
  hopByHop: rule('proxy-connection proxy-authorization proxy-authenticate te http2-settings', REMOVED),
  expect: rule('expect', { request: 'remove' }),
  trailer: rule('trailer', { response: 'ifChunked' }),
  requestId: rule('x-request-id', { request: 'ifValid', response: 'remove', lookAlike: 'removedLookAlike' }),
  forwarded: rule('forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port', {
    request: 'ifTrusted',
    lookAlike: 'removedLookAlike',
  }),
  /** Names that begin with `x-authenticated-`. An upstream that echoes its request would leak them. */
  identity: rule('', REMOVED),
  /** Says whether the request may replace an object. */
  condition: rule('if-none-match overwrite', DECIDING),
  /** Names a second object, which the request reads or writes. */
  secondPath: rule('destination x-amz-copy-source x-goog-copy-source x-ms-copy-source x-copy-from', DECIDING),
  /** Names another method, or a second object in a way that is not read here. So do names that match `OTHER_SOURCE`. */
  otherRequest: rule(
    'x-http-method-override x-http-method x-method-override ' +
      'x-object-manifest x-symlink-target x-copy-from-account destination-account',
    DECIDING,
  ),
  refusedLookAlike: rule('', { request: 'refuse' }),
  removedLookAlike: rule('', { request: 'remove' }),
  /** Not a token (RFC 9110, section 5.6.2). Node's parser, and that of responses, refuse it already. */
  invalid: rule('', { request: 'refuse', response: 'remove' }),
  /** All others. The frequent ones are named because a name that is in the table is found fastest. */
  other: rule('accept accept-encoding user-agent content-type date server etag last-modified', {
    trailer: 'forward',
  }),
} as const satisfies Readonly<Record<string, Rule>>

export type HeaderKind = keyof typeof HEADER_RULES

/** By their names in lower case, and with capitals as most clients and services send them. */
const KNOWN: ReadonlyMap<string, HeaderKind> = new Map(
  (Object.keys(HEADER_RULES) as HeaderKind[]).flatMap((kind) =>
    HEADER_RULES[kind].names
      .flatMap((name) => [name, name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())])
      .map((name) => [name, kind] as const),
  ),
)

const IDENTITY_PREFIX = 'x-authenticated-'
/** Several storage services name the object that they copy or rename in such a header: `x-oss-copy-source`. */
const OTHER_SOURCE = /-(?:copy|rename)-source$/

/** A name that folds to itself. */
const PLAIN_NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*$/
const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/

/** Takes time linear in the name, which may be as long as `limits.headerBytes`. */
export function headerKind(name: string): HeaderKind {
  const known = KNOWN.get(name)
  if (known !== undefined) return known
  const lower = name.toLowerCase()
  if (PLAIN_NAME.test(lower)) return KNOWN.get(lower) ?? unknownKind(lower)
  if (!TOKEN.test(name)) return 'invalid'
  // `Authorization_` and `-Host` fold to a name with dashes at its ends, which is looked up without them.
  const folded = lower.replace(/[^a-z0-9]/g, '-')
  let start = 0
  while (folded[start] === '-') start++
  if (folded.startsWith(IDENTITY_PREFIX, start)) return 'identity'
  let end = folded.length
  while (end > start && folded[end - 1] === '-') end--
  const trimmed = folded.slice(start, end)
  const kind = KNOWN.get(trimmed)
  return kind === undefined ? unknownKind(trimmed) : HEADER_RULES[kind].lookAlike
}

function unknownKind(folded: string): HeaderKind {
  if (folded.startsWith(IDENTITY_PREFIX)) return 'identity'
  return OTHER_SOURCE.test(folded) ? 'otherRequest' : 'other'
}
