/**
 * The rules for each kind of header, the header lines of a message with their kinds and `Connection` options,
 * and the request id. A name is folded to lower case, with `-` for all but letters and digits.
 * Careless upstreams take `_` (CGI and WSGI, RFC 3875, section 4.1.18), `.` (PHP) or any
 * such character (lighttpd) for `-` (CVE-2025-64484).
 */

/** What the sidecar does with a line. `forward`: the line is forwarded, unless `Connection` names it. */
interface Rule {
  /**
   * `ifAllowed`: by the gate. `ifValid`: if the client sent one valid request id.
   * `ifTrusted`: from a trusted proxy.
   */
  readonly request: 'forward' | 'remove' | 'refuse' | 'ifAllowed' | 'ifValid' | 'ifTrusted'
  /** `ifMayHaveBody`: not on 1xx and 204. `ifChunked`: only if trailers can follow. */
  readonly response: 'forward' | 'remove' | 'ifMayHaveBody' | 'ifChunked'
  /**
   * What the header adds to the method and the path, on which the gate decides. `condition`:
   * whether an object may be replaced. `path`: a second object. `rights`: who may use a resource.
   * `uncheckable`: another method, or a second object in a form that the gate cannot read.
   */
  readonly adds: 'nothing' | 'condition' | 'path' | 'rights' | 'uncheckable'
  /**
   * RFC 9110, section 6.5.1.
   * `ifUnrestricted`: removed from a restricted request, whose headers the gate has checked.
   */
  readonly trailer: 'forward' | 'remove' | 'ifUnrestricted'
  /** The kind of a name that is none of `names`, but folds to one, such as `content_length`. */
  readonly lookAlike: 'other' | 'removed' | 'refused' | 'uncheckable'
  readonly names: readonly string[]
}

type Treatment = Partial<Omit<Rule, 'names'>>

/** Every rule has the same fields in the same order, which V8 reads fastest. */
const rule = (names: readonly string[], treatment: Treatment): Rule => {
  const { request = 'forward', response = 'forward', adds = 'nothing', trailer, lookAlike } = treatment
  const addsNothing = adds === 'nothing'
  return {
    request,
    response,
    adds,
    trailer: trailer ?? (addsNothing ? 'remove' : 'ifUnrestricted'),
    lookAlike: lookAlike ?? (addsNothing ? 'other' : 'uncheckable'),
    names,
  }
}

const REMOVED: Treatment = { request: 'remove', response: 'remove' }

/**
 * By default, a line is forwarded, but not as a trailer. A look-alike of its name is forwarded, as `other`.
 * If a header `adds` something, the defaults are the trailer `ifUnrestricted` and the look-alike
 * `uncheckable`. `unlistedKind` has the rules for names that are not in this table.
 */
const HEADER_RULES = {
  host: rule(['Host'], { lookAlike: 'refused' }),
  contentLength: rule(['Content-Length'], { response: 'ifMayHaveBody', lookAlike: 'refused' }),
  /** The body of a request keeps its framing. Node frames the body of a response. */
  transferEncoding: rule(['Transfer-Encoding'], { response: 'remove', lookAlike: 'refused' }),
  authorization: rule(['Authorization'], { request: 'ifAllowed', lookAlike: 'refused' }),
  /** In a response, the sidecar moves this header before `Content-Length`. */
  contentDisposition: rule(['Content-Disposition'], { trailer: 'forward' }),
  connection: rule(['Connection'], REMOVED),
  keepAlive: rule(['Keep-Alive'], REMOVED),
  upgrade: rule(['Upgrade'], REMOVED),
  /**
   * The other hop-by-hop headers (RFC 9110, section 7.6.1), and headers for the next proxy,
   * the sidecar (section 11.7).
   */
  hopByHop: rule(
    ['Proxy-Connection', 'Proxy-Authorization', 'Proxy-Authenticate', 'TE', 'HTTP2-Settings'],
    REMOVED,
  ),
  expect: rule(['Expect'], { request: 'remove' }),
  trailer: rule(['Trailer'], { response: 'ifChunked' }),
  requestId: rule(['X-Request-Id'], { request: 'ifValid', response: 'remove', lookAlike: 'removed' }),
  forwarded: rule(
    ['Forwarded', 'X-Forwarded-For', 'X-Forwarded-Host', 'X-Forwarded-Proto', 'X-Forwarded-Port'],
    {
      request: 'ifTrusted',
      lookAlike: 'removed',
    },
  ),
  /**
   * Names that begin with `x-authenticated-`. Removed from responses, too: an upstream may echo its request.
   */
  identity: rule([], REMOVED),
  condition: rule(['If-None-Match', 'Overwrite'], { adds: 'condition' }),
  /** COPY and MOVE write the object of `Destination`. The object of another header is read. */
  otherPath: rule(
    ['Destination', 'X-Amz-Copy-Source', 'X-Goog-Copy-Source', 'X-Ms-Copy-Source', 'X-Copy-From'],
    {
      adds: 'path',
    },
  ),
  /**
   * Also names with a word of `SECOND_RESOURCE`, and look-alikes of these and of `condition` and `otherPath`.
   */
  uncheckable: rule(['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'], {
    adds: 'uncheckable',
  }),
  /**
   * Such a name that begins with `x-envoy-`: Envoy itself sets them.
   * They are `other` from a peer of `forwarded.trust`.
   */
  uncheckableOfEnvoy: rule([], { adds: 'uncheckable' }),
  /** Access control lists and grants of object stores, and settings of containers and accounts. */
  rights: rule([], { adds: 'rights' }),
  /** Look-alikes. */
  refused: rule([], { request: 'refuse' }),
  removed: rule([], { request: 'remove' }),
  /**
   * A name that is not a token (RFC 9110, section 5.6.2).
   * Node's parser and the response parser refuse such a name.
   */
  invalid: rule([], { request: 'refuse', response: 'remove' }),
  /** All other names. Frequent names are listed here, because a listed name is found fastest. */
  other: rule(
    ['Accept', 'Accept-Encoding', 'User-Agent', 'Content-Type', 'Date', 'Server', 'ETag', 'Last-Modified'],
    {
      trailer: 'forward',
    },
  ),
} as const satisfies Readonly<Record<string, Rule>>

type HeaderKind = keyof typeof HEADER_RULES

/** In lower case: the names in the table that add something to the method and the path of a request. */
export const JUDGED_HEADERS: readonly string[] = Object.values(HEADER_RULES).flatMap(({ adds, names }) =>
  adds === 'nothing' ? [] : names.map((name) => name.toLowerCase()),
)

/** The kind of each listed name, in lower case and in the usual spelling. */
const LISTED: ReadonlyMap<string, HeaderKind> = new Map(
  (Object.keys(HEADER_RULES) as HeaderKind[]).flatMap((kind) =>
    HEADER_RULES[kind].names.flatMap((name) => [[name, kind] as const, [name.toLowerCase(), kind] as const]),
  ),
)

const IDENTITY_PREFIX = 'x-authenticated-'

/**
 * The words of names that may name a second resource, such as `X-Oss-Copy-Source`, `X-Object-Manifest`,
 * `X-Original-URL` or the `Source` of HTTP-TPC.
 * Services invent such names, so a list of whole names would never be complete.
 */
export const SECOND_RESOURCE_WORDS = [
  'copy',
  'rename',
  'move',
  'fetch',
  'link',
  'symlink',
  'source',
  'target',
  'destination',
  'location',
  'manifest',
  'path',
  'uri',
  'url',
  'redirect',
  'versions',
]
const SECOND_RESOURCE = new RegExp(`(?:^|-)(?:${SECOND_RESOURCE_WORDS.join('|')})(?:-|$)`)

/** Names of the IANA registry with such a word. None of them names a resource on which a request acts. */
const REGISTERED: ReadonlySet<string> = new Set([
  'apply-to-redirect-ref',
  'content-location',
  'link',
  'link-template',
  'location',
  'redirect-ref',
  'uri',
])

/** User metadata of object stores, such as `x-amz-meta-source`. */
const METADATA = /^x-[a-z0-9]+-meta-/

/** The conditions, ranges and keys of a copy source. */
const ABOUT_COPY_SOURCE = /^x-(?:amz|goog|ms)-copy-source-(?:if-|range$|server-side-encryption-)/

const ACL_OR_GRANT = /^x-(?:[a-z0-9-]*-)?(?:acl$|grant-)/

/** Swift: `X-Container-Read`, `X-Container-Sync-To`, `X-Container-Meta-Temp-URL-Key` and others. */
const CONTAINER_SETTING = /^x-(?:account|container)-/

/** A name that already is in its folded form. */
const PLAIN_NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*$/
const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/

/** Takes time linear in the name, which may be as long as `limits.headerBytes`. */
export function headerKind(name: string): HeaderKind {
  const lower = name.toLowerCase()
  if (PLAIN_NAME.test(lower)) {
    return LISTED.get(lower) ?? unlistedKind(lower)
  }
  if (!TOKEN.test(name)) {
    return 'invalid'
  }
  // `Authorization_` and `-Host` fold to a name with dashes at its ends, which is looked up without them.
  const folded = lower.replace(/[^a-z0-9]/g, '-')
  let start = 0
  while (folded[start] === '-') {
    start++
  }
  if (folded.startsWith(IDENTITY_PREFIX, start)) {
    return 'identity'
  }
  let end = folded.length
  while (end > start && folded[end - 1] === '-') {
    end--
  }
  const trimmed = folded.slice(start, end)
  const resembled = LISTED.get(trimmed)
  return resembled === undefined ? unlistedKind(trimmed) : HEADER_RULES[resembled].lookAlike
}

function unlistedKind(folded: string): HeaderKind {
  if (folded.startsWith(IDENTITY_PREFIX)) {
    return 'identity'
  }
  if (SECOND_RESOURCE.test(folded) && !isHarmless(folded)) {
    return folded.startsWith('x-envoy-') ? 'uncheckableOfEnvoy' : 'uncheckable'
  }
  return setsRights(folded) ? 'rights' : 'other'
}

function isHarmless(folded: string): boolean {
  // `X-Forwarded-…` and the metadata of fetch (`Sec-Fetch-…`) tell where a request came from.
  const isOrigin = folded.startsWith('x-forwarded-') || folded.startsWith('sec-fetch-')
  return isOrigin || REGISTERED.has(folded) || METADATA.test(folded) || ABOUT_COPY_SOURCE.test(folded)
}

function setsRights(folded: string): boolean {
  return CONTAINER_SETTING.test(folded) || (ACL_OR_GRANT.test(folded) && !METADATA.test(folded))
}

const MAX_REMEMBERED = 2000
/** Longer names are rare, and would take memory. */
const MAX_REMEMBERED_LENGTH = 64

/** Remembers the kinds of names, because most messages bring names that others have brought. */
class RememberedKinds {
  #kinds = new Map(LISTED)

  kindOf(name: string): HeaderKind {
    const known = this.#kinds.get(name)
    if (known !== undefined) {
      return known
    }
    const kind = headerKind(name)
    if (name.length <= MAX_REMEMBERED_LENGTH) {
      this.#remember(flatCopy(name), kind)
    }
    return kind
  }

  /** Forgets all others once there are too many: names may differ with every message. */
  #remember(name: string, kind: HeaderKind): void {
    if (this.#kinds.size >= MAX_REMEMBERED) {
      this.#kinds = new Map(LISTED)
    }
    this.#kinds.set(name, kind)
  }
}

const remembered = new RememberedKinds()

/** Names and values, alternating. */
export type HeaderList = readonly string[]

/** The header lines of a message as received, each with its kind. An object for each line would cost more. */
export class HeaderLines {
  readonly raw: HeaderList
  readonly kinds: readonly HeaderKind[]
  readonly connectionOptions: ConnectionOptions | undefined

  /** @param isPeerTrusted - whether the message comes from a proxy of `forwarded.trust` */
  constructor(raw: HeaderList, isPeerTrusted = false) {
    const kinds: HeaderKind[] = []
    for (let at = 0; at < raw.length; at += 2) {
      const kind = remembered.kindOf(raw[at] as string)
      kinds.push(isPeerTrusted && kind === 'uncheckableOfEnvoy' ? 'other' : kind)
    }
    this.raw = raw
    this.kinds = kinds
    this.connectionOptions = parseConnection(this.joined('connection'))
  }

  name(line: number): string {
    return this.raw[2 * line] as string
  }

  value(line: number): string {
    return this.raw[2 * line + 1] as string
  }

  rule(line: number): Rule {
    return HEADER_RULES[this.kinds[line] as HeaderKind]
  }

  /** Whether a line adds more than a condition to the method and the path of a request. */
  get addAccess(): boolean {
    return this.kinds.some((kind) => {
      const { adds } = HEADER_RULES[kind]
      return adds !== 'nothing' && adds !== 'condition'
    })
  }

  /** Whether `Connection` names the line. Such a line is for the next hop alone (RFC 9110, section 7.6.1). */
  isNamedByConnection(line: number): boolean {
    return this.connectionOptions?.has(this.name(line).toLowerCase()) === true
  }

  /** @param name - in lower case */
  values(name: string): string[] {
    return this.raw.filter((_, at) => at % 2 === 1 && this.raw[at - 1]?.toLowerCase() === name)
  }

  /** Returns the values of all lines of a kind as one list (RFC 9110, section 5.3). */
  joined(kind: HeaderKind): string | undefined {
    const first = this.kinds.indexOf(kind)
    if (first < 0) {
      return undefined
    }
    let list = this.value(first)
    for (let line = first + 1; line < this.kinds.length; line++) {
      if (this.kinds[line] === kind) {
        list = `${list},${this.value(line)}`
      }
    }
    return list
  }
}

export function headerText(headers: HeaderList): string {
  let lines = ''
  for (let at = 0; at < headers.length; at += 2) {
    lines += `${headers[at]}: ${headers[at + 1]}\r\n`
  }
  return lines
}

/**
 * The options of `Connection` (RFC 9110, section 7.6.1), in lower case:
 * `close`, or the name of a hop-by-hop field.
 */
type ConnectionOptions = ReadonlySet<string>

/**
 * `value`: the values of all lines, joined by commas. `keep-alive` alone asks for what HTTP/1.1 does anyway.
 */
function parseConnection(value: string | undefined): ConnectionOptions | undefined {
  const lower = value?.toLowerCase()
  if (lower === undefined || lower === 'keep-alive') {
    return undefined
  }
  const options = lower.split(',').map((option) => option.trim())
  return new Set(options.filter(Boolean))
}

/**
 * Whether `Connection` names a field of framing or identity:
 * an identity header, or one whose look-alike is refused.
 */
export const namesFramingOrIdentity = (options: ConnectionOptions): boolean =>
  [...options]
    .map(headerKind)
    .some((kind) => kind === 'identity' || kind === 'refused' || HEADER_RULES[kind].lookAlike === 'refused')

/** @param isRestricted - whether the gate allowed the request by its headers, without the trailers */
export function forwardedTrailers(
  rawTrailers: HeaderList,
  { connectionOptions }: HeaderLines,
  isRestricted = false,
): [name: string, value: string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    const { trailer } = HEADER_RULES[headerKind(name)]
    const passes = trailer === 'forward' || (trailer === 'ifUnrestricted' && !isRestricted)
    if (passes && !connectionOptions?.has(name.toLowerCase())) {
      trailers.push([name, rawTrailers[at + 1] as string])
    }
  }
  return trailers
}

/** Safe in a header, in a log line and in a shell. */
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/

/**
 * Returns the client's request id if it sent exactly one, and that is valid.
 * Two are joined by a comma, which is invalid.
 */
export function requestIdOf(lines: HeaderLines): string | undefined {
  const id = lines.joined('requestId')
  return id !== undefined && REQUEST_ID.test(id) ? id : undefined
}

/**
 * Copies a Latin-1 text.
 * V8 keeps the whole text in memory behind a slice, and the parts behind a concatenation.
 */
export const flatCopy = (text: string): string => Buffer.from(text, 'latin1').toString('latin1')
