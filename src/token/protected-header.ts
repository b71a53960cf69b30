/**
 * Reads the protected header of a token, which anyone can have written: the signature is not checked yet.
 *
 * In: the first segment. Out: the three parameters that we act on. Parameters that change what the rest of
 * the token means (`crit`, `b64`, `zip`, `cty`) make it no token of ours; those that name a key other than by
 * `kid` (`jwk`, `jku`, `x5u`, `x5c`) are never followed (RFC 8725, section 3.10).
 *
 * @module
 */
import { LRUCache } from 'lru-cache'
import { ownText } from '../own-text.ts'
import { isJsonObject, parseStrictJson } from '../strict-json.ts'

/** What the header says of itself. Unproven. */
export interface ProtectedHeader {
  readonly alg: string
  readonly kid: string | undefined
  /** Any JSON value; see {@link isAccessTokenType}. */
  readonly typ: unknown
}

/** Parameters that change what the rest of a token means: one that has any of them is refused. */
export const REFUSED_PARAMETERS = ['crit', 'b64', 'zip', 'cty']

/**
 * Headers that came before, by their segment: those of all tokens of a key are the same text. Bounded, as segments are
 * anybody's to choose, and so is their length.
 */
const parsed = new LRUCache<string, { readonly header: ProtectedHeader | undefined }>({ max: 64 })
const LONGEST_KEPT = 256

/**
 * Parses a protected header.
 *
 * @param segment - base64url, already known to be canonical
 * @returns `undefined` when it is no header that a token of ours can have; never throws
 */
export function parseProtectedHeader(segment: string): ProtectedHeader | undefined {
  if (segment.length > LONGEST_KEPT) return parse(segment)
  const before = parsed.get(segment)
  if (before !== undefined) return before.header
  const header = parse(segment)
  parsed.set(ownText(segment), { header })
  return header
}

function parse(segment: string): ProtectedHeader | undefined {
  const json = parseStrictJson(Buffer.from(segment, 'base64url'))
  if (!json.ok || !isJsonObject(json.value)) return undefined
  const header = json.value
  if (REFUSED_PARAMETERS.some((name) => header[name] !== undefined)) return undefined
  const { alg, kid, typ } = header
  if (typeof alg !== 'string' || (kid !== undefined && typeof kid !== 'string')) return undefined
  return { alg, kid, typ }
}

/**
 * Whether `typ` is that of an access token (RFC 9068, section 2.1): a media type, so case does not matter and
 * `application/` may stand before it (RFC 7515, section 4.1.9). It keeps tokens of another kind, signed by
 * the same key, from being taken for access tokens (RFC 8725, section 3.11).
 */
export function isAccessTokenType(typ: unknown): boolean {
  if (typeof typ !== 'string') return false
  const type = typ.toLowerCase()
  return type === 'at+jwt' || type === 'application/at+jwt'
}
