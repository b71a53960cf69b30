/**
 * Tells whether a text can be one of our tokens at all, before anything costly is done with it.
 *
 * In: what followed `Bearer`. Out: yes or no. A text that passes is the only spelling of what it decodes to:
 * three segments of base64url without padding, whitespace or stray trailing bits (RFC 7515, section 2;
 * RFC 4648, section 3.5). Decoders accept many spellings of one token; a holder of one valid token could
 * otherwise fill a cache that is keyed by the text.
 *
 * @module
 */

/** The longest token that is looked at, in bytes. */
export const MOST_TOKEN_BYTES = 8192

/**
 * Whole groups of four characters, and at the end perhaps two or three, the last of which stands for bits
 * that are zero where they carry nothing. One character more than whole groups is no base64url.
 */
const SEGMENT = '(?:[\\w-]{4})*(?:[\\w-]{4}|[\\w-][AQgw]|[\\w-]{2}[AEIMQUYcgkosw048])'
const SHAPE = new RegExp(`^${SEGMENT}\\.${SEGMENT}\\.${SEGMENT}$`)

/** Whether a text has the shape of a compact JWS in its canonical spelling, and no more than 8 KiB. */
export function hasTokenShape(token: string): boolean {
  return token.length <= MOST_TOKEN_BYTES && SHAPE.test(token)
}
