/**
 * Reads `Authorization: Basic` (RFC 7617), in its one canonical form.
 * In: the value of the header. Out: the name before the first colon and the secret behind it, from UTF-8.
 */

export interface BasicCredentials {
  /** May be empty, and may hold any character but controls and a colon. */
  readonly name: string
  /** May be empty, and may hold any character but controls. */
  readonly secret: string
}

/** Exactly one scheme, spaces and padded base64: no tab, no list, no other alphabet. */
const BASIC = /^basic +([A-Za-z0-9+/]+={0,2})$/i

/** Keeps a byte order mark, which is a character of the name like any other. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** @returns undefined for a malformed value and for any other scheme */
export function parseBasicAuthorization(authorization: string): BasicCredentials | undefined {
  const encoded = BASIC.exec(authorization)?.[1]
  const text = encoded === undefined ? undefined : decodeBase64(encoded)
  // RFC 7617, section 2: neither the name nor the secret holds a control character.
  if (text === undefined || /[\x00-\x1f\x7f]/.test(text)) {
    return undefined
  }
  const colon = text.indexOf(':')
  if (colon < 0) {
    return undefined
  }
  return { name: text.slice(0, colon), secret: text.slice(colon + 1) }
}

/** Undefined unless the text is the canonical base64 of UTF-8. */
function decodeBase64(encoded: string): string | undefined {
  const bytes = Buffer.from(encoded, 'base64')
  if (bytes.toString('base64') !== encoded) {
    return undefined
  }
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}
