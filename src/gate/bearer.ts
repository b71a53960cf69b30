/**
 * Finds the bearer token in an `Authorization` value.
 *
 * The scheme is case-insensitive and one or more spaces follow it (RFC 6750, section 2.1; RFC 9110, 11.4).
 * What follows is handed on as it stands: whether it has the shape of a token is the verifier's decision,
 * so a list or a second scheme is refused there.
 *
 * @module
 */

/** Why no token was found. */
export type NoToken = 'missing' | 'malformed'

/** A token found, or why there is none. */
export type Bearer = { readonly token: string } | { readonly token: undefined; readonly reason: NoToken }

const missing: Bearer = { token: undefined, reason: 'missing' }
const malformed: Bearer = { token: undefined, reason: 'malformed' }

/**
 * @param authorization - the value of the one `Authorization` header, without surrounding white space
 */
export function bearerToken(authorization: string | undefined): Bearer {
  if (authorization === undefined) return missing
  if (authorization.length < 8 || authorization.charCodeAt(6) !== 0x20) return malformed
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return malformed
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  return start === authorization.length ? malformed : { token: authorization.slice(start) }
}
