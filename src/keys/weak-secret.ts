/**
 * Tells why an HMAC secret is too weak to trust.
 *
 * In: the secret's bytes. Out: the reason in plain words, which never quote the secret, or nothing. Whoever
 * knows the secret can mint any token, so a secret that was ever printed in a manual is no secret
 * (RFC 8725, section 3.5).
 *
 * @module
 */

/** HS256 needs a key at least as long as its hash (RFC 7518, section 3.2). */
const LEAST_BYTES = 32

/** 32 random bytes hold fewer distinct values with a chance below 2^-100; hex text holds about 14. */
const LEAST_DISTINCT = 8

/** Words of which the examples in manuals and forums are made. Random text does not hold them. */
const EXAMPLE_WORDS =
  /secret|passw|change|example|default|qwerty|abcdef|123456|random|token|jwt[-_ ]?key|sample|your[-_ ]/i

/** At most 128 random bits, and the most common form among secrets found in public repositories. */
const UUID = /^\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?$/i

/** Secrets printed in RFCs and in well-known examples that no rule above catches: bytes in base64url. */
const PUBLISHED: ReadonlySet<string> = new Set([
  'AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow', // RFC 7515, A.1
  'hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg', // RFC 7520, 3.5
  ...[
    'reallyreallyreallyreallyverysafe',
    'r9iMKoe5CRMgvJBBtp4HrqN7QiPpUToj',
    '16f8c0ef4a5d391b26034086c628469d3f9f497f08163ab9b40137092f2909ef',
    '01234567890abcde01234567890abcde01234567890abcde01234567890abcde',
    'thequickbrownfoxjumpsoverthelazydog',
    'the quick brown fox jumps over the lazy dog',
  ].map((text) => Buffer.from(text).toString('base64url')),
])

/** Why this secret must not be used; `undefined` when nothing speaks against it. */
export function weakSecret(secret: Uint8Array): string | undefined {
  if (secret.length < LEAST_BYTES) return `the secret is shorter than ${LEAST_BYTES} bytes`
  if (new Set(secret).size < LEAST_DISTINCT) return 'the secret repeats a few characters'
  const bytes = Buffer.from(secret)
  const text = bytes.toString('latin1')
  if (UUID.test(text)) return 'the secret is a UUID or 128 bits written in hex, which is too little'
  if (PUBLISHED.has(bytes.toString('base64url')) || EXAMPLE_WORDS.test(text)) {
    return 'the secret is a well-known one or reads like one'
  }
  return undefined
}
