/**
 * What may reach the upstream: the invariants that every forwarded request is held against.
 *
 * In: a request as the upstream read it, and the client's request that it must be. Out: the first thing that is not as
 * it must be. Method, target, body and header lines are the client's, byte for byte and in order, but for what must
 * never pass; the identity is that of the token which came with this very request.
 *
 * @module
 */
import { type ExpectedIdentity, type ExpectedRequest, folded, isLookAlike } from './expected-requests.ts'
import { type Field, listed, single } from './http-grammar.ts'

/** A request as the upstream read it. */
export interface SeenRequest {
  readonly method: string
  readonly target: string
  readonly fields: readonly Field[]
  readonly framing: ExpectedRequest['framing']
  readonly body: string
  readonly trailers: readonly Field[]
}

const IDENTITY = 'x-authenticated-'
/** Lines that the sidecar sets itself, whatever the client sends. */
const FORWARDING = [
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'forwarded',
]
const HOP_BY_HOP = ['connection', 'keep-alive', 'proxy-connection', 'te', 'upgrade']
/** Lines whose fate the rules do not settle. */
const EITHER = ['expect', 'trailer', 'proxy-authorization', 'http2-settings']
const FRAMING = ['host', 'content-length', 'transfer-encoding', 'authorization']

/**
 * The first way in which the header or target of a forwarded request is wrong; undefined when all is right.
 *
 * @param fleeting - the client may have gone before its connection was looked at; then nobody knows its address
 */
export function headProblem(
  seen: SeenRequest,
  expected: ExpectedRequest,
  fleeting: boolean,
): string | undefined {
  const { fate } = expected
  if (fate.kind !== 'forward') return 'a request was forwarded that had to be answered'
  if (expected.verdict === 'refuse' && expected.why[0] !== 'body')
    return `forwarded in spite of: ${expected.why}`
  if (seen.method !== expected.method) return 'the method changed'
  if (seen.target !== expected.target) return 'the target changed'
  if (seen.framing !== expected.framing) return 'the framing changed'
  return (
    identityProblem(seen.fields, fate.identity) ??
    ownLinesProblem(seen.fields, expected, fleeting ? ['127.0.0.1', 'unknown'] : ['127.0.0.1']) ??
    passedLinesProblem(seen.fields, expected)
  )
}

/** The first way in which the body of a whole request is wrong. */
export function bodyProblem(seen: SeenRequest, expected: ExpectedRequest): string | undefined {
  if (expected.verdict === 'refuse' || expected.verdict === 'unfinished') {
    return 'a request whose body was never whole is whole at the upstream'
  }
  if (seen.body !== expected.body) return 'the body changed'
  const passing = expected.trailers.filter(
    ({ name }) => /^x-/i.test(name) && !readsAsOurs(name) && !isLookAlike(name),
  )
  const wanted = passing.map(line)
  const got = seen.trailers.map(line)
  if (seen.trailers.some(({ name }) => isOurs(name) || FRAMING.includes(folded(name))))
    return 'a trailer that may not pass'
  if (got.some((trailer) => !expected.trailers.map(line).includes(trailer))) return 'a trailer nobody sent'
  return wanted.every((trailer) => got.includes(trailer)) ? undefined : 'a trailer was lost'
}

/** Percent-encodes an identity value as the contract says: every UTF-8 byte outside `!` to `~`, and `%`. */
export function encodedIdentity(value: string): string {
  return [...Buffer.from(value, 'utf8')]
    .map((byte) =>
      byte < 0x21 || byte > 0x7e || byte === 0x25
        ? `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
        : String.fromCharCode(byte),
    )
    .join('')
}

function identityProblem(fields: readonly Field[], identity: ExpectedIdentity): string | undefined {
  const wanted = new Map([
    ['x-authenticated-account-id', encodedIdentity(identity.accountId)],
    ['x-authenticated-access-key', encodedIdentity(identity.accessKey)],
    ['x-authenticated-token-id', encodedIdentity(identity.tokenId)],
    ['x-authenticated-token-expires', String(identity.expiresAt)],
  ])
  for (const { name, value } of fields) {
    if (!folded(name).startsWith(IDENTITY)) continue
    const lower = name.toLowerCase()
    if (!wanted.has(lower)) return `an identity line that is not ours, or stands twice: ${name}`
    if (wanted.get(lower) !== value) return `the identity of somebody else: ${name}`
    wanted.delete(lower)
  }
  return wanted.size === 0 ? undefined : `no identity: ${[...wanted.keys()]}`
}

/** The lines that the sidecar sets, and that nobody can imitate. */
function ownLinesProblem(
  fields: readonly Field[],
  expected: ExpectedRequest,
  addresses: readonly string[],
): string | undefined {
  const host = single(expected.fields, 'host')
  const hostValue = typeof host === 'object' ? host.value : undefined
  const forwardedHost = single(fields, 'x-forwarded-host')
  if (hostValue === undefined ? forwardedHost !== undefined : !isValue(forwardedHost, hostValue)) {
    return 'X-Forwarded-Host'
  }
  if (!addresses.some((address) => isValue(single(fields, 'x-forwarded-for'), address)))
    return 'X-Forwarded-For'
  if (!isValue(single(fields, 'x-forwarded-proto'), 'http')) return 'X-Forwarded-Proto'
  for (const name of ['x-forwarded-port', 'forwarded', 'host']) {
    if (typeof single(fields, name) !== 'object') return `not exactly one ${name}`
  }
  const id = single(fields, 'x-request-id')
  if (typeof id !== 'object') return 'not exactly one X-Request-Id'
  const kept = keptRequestId(expected.fields)
  if (kept === undefined ? !/^[0-9a-f-]{36}$/.test(id.value) : id.value !== kept)
    return 'X-Request-Id changed'
  for (const { name } of fields) {
    const lower = name.toLowerCase()
    const read = folded(name).replace(/^-+|-+$/g, '')
    if (read !== lower && (FRAMING.includes(read) || FORWARDING.includes(read))) {
      return `a line that reads as ${read}: ${name}`
    }
    if (lower === 'authorization') return 'the token was passed on'
  }
  return undefined
}

/** The client's request id, where it must be kept. */
export function keptRequestId(fields: readonly Field[]): string | undefined {
  const id = single(fields, 'x-request-id')
  return typeof id === 'object' && /^[A-Za-z0-9._-]{1,128}$/.test(id.value) ? id.value : undefined
}

/** Compares the client's lines with the upstream's, both in order, without those that the sidecar sets. */
function passedLinesProblem(fields: readonly Field[], expected: ExpectedRequest): string | undefined {
  const nominated = listed(expected.fields, 'connection')
  const clientHasHost = single(expected.fields, 'host') !== undefined
  const set = ({ name }: Field) =>
    isOurs(name) || name.toLowerCase() === 'x-request-id' || (!clientHasHost && name.toLowerCase() === 'host')
  const got = fields.filter((field) => !set(field)).map(line)
  let at = 0
  for (const field of expected.fields) {
    const lower = field.name.toLowerCase()
    if (set(field) || lower === 'authorization' || HOP_BY_HOP.includes(lower)) continue
    // Framing cannot be nominated away; such a request is refused.
    if (nominated.includes(lower) && !FRAMING.includes(lower)) continue
    if (got[at] === line(field)) at++
    else if (!EITHER.includes(lower) && !isLookAlike(field.name) && !readsAsOurs(field.name)) {
      return `a line was lost, changed or moved: ${field.name}`
    }
  }
  return at === got.length ? undefined : `a line nobody sent: ${got[at]}`
}

function isOurs(name: string): boolean {
  return folded(name).startsWith(IDENTITY) || FORWARDING.includes(name.toLowerCase())
}

/** Whether some server might take a name for one of ours. */
export function readsAsOurs(name: string): boolean {
  const read = name
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '-')
    .replace(/^-+|-+$/g, '')
  return `${read}-`.startsWith(IDENTITY) || FORWARDING.includes(read) || read === 'x-request-id'
}

function line({ name, value }: Field): string {
  return `${name}: ${value}`
}

function isValue(found: ReturnType<typeof single>, value: string): boolean {
  return typeof found === 'object' && found.value === value
}
