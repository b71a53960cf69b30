/**
 * What a connection's bytes are, by the letter: the oracle of the fuzz run for requests.
 *
 * In: everything a client sends on one connection. Out: the requests in it, each with what the sidecar must do about
 * it. Where the rules leave a choice (a leading zero in a length, two spaces in a request line) the request may be
 * refused or taken in the one reading given here; nothing else. What stands behind a refused request, or behind one
 * that closes the connection, is no request.
 *
 * Written from RFC 9110, RFC 9112 and the documented interface, and shares no code with the sidecar.
 *
 * @module
 */
import { expectedLogin, type KnownLogin } from './expected-logins.ts'
import {
  type Field,
  isFieldText,
  isToken,
  listed,
  type ReadBody,
  readChunks,
  readFields,
  single,
} from './http-grammar.ts'

/** Who a token speaks for, as it must stand in the identity headers before they are encoded. */
export interface ExpectedIdentity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  readonly expiresAt: number
}

/** What the sidecar is known to hold. */
export interface KnownTrust {
  /** Tokens that it accepts. */
  readonly valid: ReadonlyMap<string, ExpectedIdentity>
  /** Tokens that it signed and that have expired. Every other text is no token. */
  readonly expired: ReadonlySet<string>
  readonly logins: readonly KnownLogin[]
}

/** What becomes of a request once it has been understood: it goes to the upstream, or is answered here. */
export type Fate =
  | { readonly kind: 'forward'; readonly identity: ExpectedIdentity }
  | { readonly kind: 'answer'; readonly answers: readonly Answer[] }

/** An answer of the sidecar: its status and public code; 200 has no code. */
export type Answer = `${200} ` | `${400 | 403 | 405 | 408 | 431 | 500 | 503} ${string}`

/** A request, or what stands where one should. */
export interface ExpectedRequest {
  /**
   * `take`: must be treated as its fate says. `either`: that, or refused. `refuse`: must be refused. `unfinished`: the
   * bytes end inside it; it may be refused, and never be complete anywhere.
   */
  readonly verdict: 'take' | 'either' | 'refuse' | 'unfinished'
  /** What is wrong with it, in words. */
  readonly why: readonly string[]
  readonly fate: Fate
  /** Whether a head was read, so that some of the request may go to the upstream. */
  readonly hasHead: boolean
  readonly method: string
  /** In origin form. */
  readonly target: string
  readonly http10: boolean
  readonly fields: readonly Field[]
  readonly framing: 'none' | 'length' | 'chunked'
  readonly body: string
  readonly trailers: readonly Field[]
  /** Whether the connection ends with its response. */
  readonly closes: 'no' | 'yes' | 'maybe'
  /** Where it begins in the connection's bytes, and ends. */
  readonly start: number
  readonly end: number
}

/** Bounds that are plainly inside, and plainly outside, what the settings allow. */
const HEADER_BYTES = 16_384
const SURELY_SMALL = 16_000
const HEADER_LINES = 200

const REFUSALS: readonly Answer[] = ['400 InvalidArgument', '431 InvalidArgument']
const TOO_LARGE: Fate = { kind: 'answer', answers: ['431 InvalidArgument'] }
const MALFORMED: Fate = { kind: 'answer', answers: [...REFUSALS, '400 InvalidToken'] }
const INVALID_TOKEN: Fate = { kind: 'answer', answers: ['400 InvalidToken'] }
const EXPIRED_TOKEN: Fate = { kind: 'answer', answers: ['400 ExpiredToken'] }

/** Methods that every HTTP server must be expected to know; a request with another one may be refused. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND', 'MKCOL'])

/** Names with a meaning of their own: a name that some server might read as one of them may be refused. */
const SPECIAL = new Set([
  'host',
  'content-length',
  'transfer-encoding',
  'authorization',
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'te',
  'upgrade',
  'http2-settings',
  'expect',
  'trailer',
])

/** Lower-cased, with `_` and `.` read as `-`. */
export function folded(name: string): string {
  return name.toLowerCase().replace(/[_.]/g, '-')
}

/** What a name could be read as by a server that takes any odd character for a dash and drops loose ones. */
function misread(name: string): string {
  return name
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '-')
    .replace(/^-+|-+$/g, '')
}

/** Whether a name is not one of the special ones, but might be taken for one. */
export function isLookAlike(name: string): boolean {
  return !SPECIAL.has(name.toLowerCase()) && SPECIAL.has(misread(name))
}

/** The requests that a connection's bytes hold. */
export function expectedRequests(bytes: string, trust: KnownTrust): ExpectedRequest[] {
  const requests: ExpectedRequest[] = []
  for (let at = 0; ; ) {
    const start = at
    while (bytes[at] === '\r' || bytes[at] === '\n') at++
    // A line feed alone is no empty line; a server may skip it all the same.
    if (at === bytes.length && /^(?:\r\n)*$/.test(bytes.slice(start))) return requests
    const request = readRequest(bytes, at, at > start ? ['an empty line before it'] : [], trust)
    requests.push(request)
    if (request.verdict === 'refuse' || request.verdict === 'unfinished' || request.closes === 'yes') {
      return requests
    }
    at = request.end
  }
}

function readRequest(bytes: string, start: number, oddities: string[], trust: KnownTrust): ExpectedRequest {
  const nothing = {
    hasHead: false,
    method: bytes.startsWith('HEAD ', start) ? 'HEAD' : '', // as which a server may have read it
    target: '',
    http10: false,
    fields: [],
    framing: 'none',
    body: '',
    trailers: [],
    closes: 'maybe',
    start,
    end: bytes.length,
  } as const
  const unfinished = { ...nothing, verdict: 'unfinished', why: ['cut'], fate: MALFORMED } as const
  // A server may want to see the end of a head before it judges any of it.
  const hasEnd = /\n\r?\n/.test(bytes.slice(start))
  const refuse = (why: string, fate: Fate = MALFORMED): ExpectedRequest =>
    hasEnd ? { ...nothing, verdict: 'refuse', why: [why], fate } : unfinished

  const lineEnd = bytes.indexOf('\r\n', start)
  if (lineEnd < 0) return unfinished
  const line = /^([^ ]+)( +)([^ ]+)( +)HTTP\/(1\.[01])$/s.exec(bytes.slice(start, lineEnd))
  if (line === null) return refuse('request line')
  const [, method = '', gap, rawTarget = '', gap2, version] = line
  if (gap !== ' ' || gap2 !== ' ') oddities.push('spaces in the request line')
  if (!isToken(method)) return refuse('method')
  if (method === 'CONNECT' || method === 'TRACE' || method === 'PRI') return refuse('method')
  if (!METHODS.has(method)) oddities.push('unusual method')
  const read = readFields(bytes, lineEnd + 2)
  if (read === undefined) return unfinished
  if (read === 'bad') return refuse('field line')
  const { fields } = read
  const http10 = version === '1.0'

  const problem = headProblem(fields, http10)
  if (problem !== undefined) return refuse(problem)
  if (fields.some(({ name }) => isLookAlike(name))) oddities.push('a name like a special one')
  if (fields.some(({ name, padded }) => padded && SPECIAL.has(name.toLowerCase()))) {
    oddities.push('white space around a special value')
  }
  const options = listed(fields, 'connection')
  if (!options.every(isToken)) oddities.push('connection options')
  if (options.some((option) => isLookAlike(option))) oddities.push('nomination of a name like a special one')
  if (http10 && single(fields, 'expect') !== undefined) oddities.push('an expectation in HTTP/1.0')

  const length = single(fields, 'content-length')
  if (typeof length === 'object' && !/^(?:0|[1-9][0-9]{0,14})$/.test(length.value)) {
    if (!/^0[0-9]{1,14}$/.test(length.value)) return refuse('length')
    oddities.push('leading zero in a length')
  }
  const host = single(fields, 'host')
  const hostValue = typeof host === 'object' ? host.value : undefined
  if (hostValue !== undefined && hostIsOdd(hostValue)) oddities.push('host')
  const target = originForm(rawTarget, hostValue, oddities)
  if (target === undefined) return refuse('target')

  const fieldBytes = fields.reduce((sum, { name, value }) => sum + name.length + value.length + 4, 0)
  // With anything else about it, that may be told first.
  const tooLarge = oddities.length === 0 ? TOO_LARGE : MALFORMED
  if (fields.length > HEADER_LINES) return refuse('too many lines', tooLarge)
  if (fieldBytes > HEADER_BYTES || target.length > HEADER_BYTES) return refuse('too large', tooLarge)
  if (read.end - start > SURELY_SMALL) oddities.push('nearly too large')
  if (single(fields, 'upgrade') !== undefined) {
    if (options.includes('upgrade')) return refuse('upgrade')
    oddities.push('upgrade without its connection option')
  }

  const chunked = single(fields, 'transfer-encoding') !== undefined
  const framing = chunked ? 'chunked' : length === undefined ? 'none' : 'length'
  const size = typeof length === 'object' ? Number(length.value) : 0
  const body = chunked ? readChunks(bytes, read.end) : counted(bytes, read.end, size)
  const common = { hasHead: true, method, target, http10, fields, framing, start } as const
  const whole = typeof body === 'object' ? body : { body: '', trailers: [], end: bytes.length, plain: true }
  if (!whole.plain) oddities.push('chunks')
  if (whole.trailers.some(({ name }) => SPECIAL.has(misread(name)))) oddities.push('trailers')
  const fate = fateOf(method, target, fields, whole.body, trust)
  const closes = closesWith(fields, options, http10, fate, framing)
  const request = { ...common, ...whole, fate, closes }
  if (body === 'bad') return { ...request, verdict: 'refuse', why: ['body'] }
  if (body === undefined) return { ...request, verdict: 'unfinished', why: ['cut in its body'] }
  return { ...request, verdict: oddities.length > 0 ? 'either' : 'take', why: oddities }
}

/** Why a head must be refused, as far as single lines and their number go. */
function headProblem(fields: readonly Field[], http10: boolean): string | undefined {
  const host = single(fields, 'host')
  if (host === 'twice') return 'two hosts'
  if (host === undefined && !http10) return 'no host'
  if (host !== undefined && /^$|[,@/\\?# \t]/.test(host.value)) return 'host'
  if (single(fields, 'content-length') === 'twice') return 'two lengths'
  if (single(fields, 'authorization') === 'twice') return 'two authorizations'
  const coding = single(fields, 'transfer-encoding')
  if (coding === 'twice') return 'two codings'
  if (coding !== undefined) {
    if (coding.value.toLowerCase() !== 'chunked') return 'coding'
    if (http10) return 'chunks in HTTP/1.0'
    if (single(fields, 'content-length') !== undefined) return 'a length beside chunks'
  }
  for (const { name } of fields) {
    const read = name.toLowerCase().replaceAll('_', '-').replace(/-$/, '')
    const imitates = ['content-length', 'transfer-encoding', 'authorization'].includes(read)
    if (imitates && name.toLowerCase() !== read) return 'look-alike'
  }
  const protectedNames = ['host', 'authorization', 'content-length', 'transfer-encoding']
  for (const option of listed(fields, 'connection')) {
    if (protectedNames.includes(option) || folded(option).startsWith('x-authenticated-')) return 'nomination'
  }
  return undefined
}

/** Whether a host may be refused though it breaks none of the rules. */
function hostIsOdd(host: string): boolean {
  const named = /^[A-Za-z0-9.-]+(?::([0-9]{1,5}))?$/.exec(host)
  const port = Number((named ?? /^\[[0-9a-f:.]+\](?::([0-9]{1,5}))?$/.exec(host))?.[1] ?? 0)
  return named === null || port > 65_535
}

/** The target as the upstream must get it; undefined where the request must be refused. */
function originForm(target: string, host: string | undefined, oddities: string[]): string | undefined {
  if (!isFieldText(target) || /[#\t]/.test(target)) return undefined
  if (/[\x80-\xff]/.test(target)) oddities.push('bytes above ASCII in the target')
  if (target.startsWith('/')) return target
  const absolute = /^(https?):\/\/([^/?]*)(.*)$/is.exec(target)
  if (absolute === null) return undefined
  const [, scheme, authority = '', rest = ''] = absolute
  if (authority.toLowerCase() !== host?.toLowerCase()) return undefined
  // What a server without TLS makes of https, or a parser of an authority with odd characters, is its own affair.
  if (scheme !== 'http' || !/^[A-Za-z0-9.:-]+$/.test(authority)) oddities.push('absolute form')
  return rest.startsWith('/') ? rest : `/${rest}`
}

function counted(bytes: string, at: number, size: number): ReadBody | undefined {
  if (bytes.length < at + size) return undefined
  return { body: bytes.slice(at, at + size), trailers: [], end: at + size, plain: true }
}

function fateOf(
  method: string,
  target: string,
  fields: readonly Field[],
  body: string,
  trust: KnownTrust,
): Fate {
  const path = target.replace(/\?.*$/s, '')
  const onTokenEndpoint = path === '/v2/auth/token' || path === '/v2/auth/token/'
  if (onTokenEndpoint && method === 'POST')
    return { kind: 'answer', answers: expectedLogin(fields, body, trust.logins) }
  if (onTokenEndpoint && method !== 'GET' && method !== 'HEAD') {
    return { kind: 'answer', answers: ['405 InvalidArgument'] }
  }
  const authorization = single(fields, 'authorization')
  const value = typeof authorization === 'object' ? authorization.value : ''
  const token = /^bearer +(.+)$/is.exec(value)?.[1] ?? ''
  const identity = trust.valid.get(token)
  if (identity === undefined) return trust.expired.has(token) ? EXPIRED_TOKEN : INVALID_TOKEN
  return onTokenEndpoint ? { kind: 'answer', answers: ['200 '] } : { kind: 'forward', identity }
}

function closesWith(
  fields: readonly Field[],
  options: readonly string[],
  http10: boolean,
  fate: Fate,
  framing: ExpectedRequest['framing'],
): ExpectedRequest['closes'] {
  const contradicts = http10 && options.includes('keep-alive')
  if (options.includes('close') && options.every(isToken) && !contradicts) return 'yes'
  if (fields.some(({ name }) => name.toLowerCase() === 'proxy-connection')) return 'maybe'
  if (http10) return options.some((option) => option.includes('keep-alive')) ? 'maybe' : 'yes'
  if (options.some((option) => option.includes('close'))) return 'maybe'
  // An answer may come before the body has been read, and then ends the connection.
  return fate.kind === 'answer' && framing !== 'none' ? 'maybe' : 'no'
}

/** The answers that a request may get from the sidecar, its verdict and its fate taken together. */
export function ownAnswers({ verdict, fate, why }: ExpectedRequest): readonly Answer[] {
  const own = fate.kind === 'answer' ? fate.answers : []
  if (verdict === 'take') return own
  if (verdict === 'refuse' && why[0] !== 'body') return own
  // A body is read when the token has been checked, so what is wrong with the token may be told first.
  return verdict === 'unfinished' ? [...own, ...REFUSALS, '408 InvalidArgument'] : [...own, ...REFUSALS]
}
