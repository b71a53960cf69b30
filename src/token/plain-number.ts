/**
 * Whether a number in a JSON text is written as digits only.
 *
 * `1.8e9` and `1800000000.0` are read as whole numbers here; other readers may keep the fraction or refuse the form
 * (RFC 8259, section 6, leaves it to them), so that we would not agree on when a token ends.
 *
 * @module
 */

const QUOTE = 0x22
const BACKSLASH = 0x5c

/**
 * Looks at a member of the outermost object, and at no other of that name further inside.
 *
 * @param json - a valid JSON text whose outermost value is an object that names no member twice
 * @param name - letters only; a name spelled with escapes is not taken for it
 */
export function isPlainNumber(json: string, name: string): boolean {
  const quoted = `"${name}"`
  let depth = 0
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case QUOTE: {
        if (depth === 1 && json.startsWith(quoted, at)) {
          DIGITS.lastIndex = at + quoted.length
          if (DIGITS.test(json)) return true // a value of that spelling has no colon behind it
        }
        at = closingQuote(json, at)
        break
      }
      case 0x7b:
      case 0x5b:
        depth++
        break
      case 0x7d:
      case 0x5d:
        depth--
        break
    }
  }
  return false
}

const DIGITS = /\s*:\s*\d+\s*[,}]/y

/** The index of the quote that ends the string opened at `start`. */
function closingQuote(json: string, start: number): number {
  let at = start + 1
  while (json.charCodeAt(at) !== QUOTE) at += json.charCodeAt(at) === BACKSLASH ? 2 : 1
  return at
}
