/**
 * Reads the protected header of a token, which anyone can have written: the signature is not checked yet.
 *
 * In: the first segment. Out: the three parameters that we act on. Parameters that change what the rest of
 * the token means (`crit`, `b64`, `zip`, `cty`) make it no token of ours; those that name a key other than by
 * `kid` (`jwk`, `jku`, `x5u`, `x5c`) are never followed (RFC 8725, section 3.10).
 *
 * @module
 */
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
 * Parses a protected header.
 *
 * @param segment - base64url, already known to be canonical
 * @returns `undefined` when it is no header that a token of ours can have; never throws
 */
export function parseProtectedHeader(segment: string): ProtectedHeader | undefined {
  const parsed = parseStrictJson(Buffer.from(segment, 'base64url'))
  if (!parsed.ok || !isJsonObject(parsed.value)) return undefined
  const header = parsed.value
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
