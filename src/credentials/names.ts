/**
 * The rules for account names, access keys and secrets: in a login, a token, a credentials file or on the command line.
 * Problems fit behind the name of the field and repeat nothing of the text.
 */

/** The longest account identifier, access key or secret, in Unicode code points. */
export const MAX_FIELD_CODE_POINTS = 1024

/**
 * What keeps a text from being a secret. Anything else is allowed: spaces, control characters, both spellings
 * of an accented letter; a secret is exactly the bytes of its UTF-8 form.
 */
export function secretProblem(text: string): string | undefined {
  // A code point is one or two UTF-16 units: the cheap bound spares counting a long text.
  const tooLong = text.length > 2 * MAX_FIELD_CODE_POINTS || [...text].length > MAX_FIELD_CODE_POINTS
  if (text === '' || tooLong) return `must be 1 to ${MAX_FIELD_CODE_POINTS} characters long`
  // A lone surrogate has no UTF-8 form: encoders replace it, and two different texts become one.
  if (!text.isWellFormed()) return 'must be well-formed Unicode'
  return undefined
}

/**
 * What keeps a text from naming an account or an access key. Control characters (Unicode category Cc) are
 * refused on top: a name becomes a token's claim, a header value and a line of a log.
 */
export function nameProblem(text: string): string | undefined {
  return secretProblem(text) ?? (/\p{Cc}/u.test(text) ? 'must not hold control characters' : undefined)
}

/**
 * How many bytes the two names of a credential may take in a token, in UTF-8 and with what JSON escapes: beside them there
 * is room in 8 KiB for all else that a token holds, and for the signature of an RSA key of 4096 bits. Two names of
 * 1024 ASCII characters fit, and one of them may be in any script.
 */
export const MAX_NAMES_BYTES = 5120

/** What keeps two good names from being those of one credential, in words that fit behind the access key's. */
export function namesProblem(accountId: string, accessKey: string): string | undefined {
  const bytes = [accountId, accessKey].reduce(
    (sum, name) => sum + Buffer.byteLength(JSON.stringify(name)) - 2,
    0,
  )
  return bytes <= MAX_NAMES_BYTES
    ? undefined
    : `must be shorter: no token has room for it beside its account (${MAX_NAMES_BYTES} bytes for both, in UTF-8)`
}
