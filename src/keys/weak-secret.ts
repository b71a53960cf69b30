/**
 * Tells why an HMAC secret is too weak to trust.
 *
 * In: the secret's bytes. Out: the reason in plain words, which never quote the secret, or nothing. Whoever
 * knows the secret can mint any token, so a secret that was ever printed in a manual is no secret, and one that can
 * be guessed offline from a single token is none either (RFC 8725, section 3.5). A secret that is a text in hex or
 * base64 is judged by what it stands for, too.
 *
 * Random secrets pass: in hex, base64, base32, letters or bytes, each rule below meets one in a million at most.
 *
 * @module
 */
import { isPublishedSecret } from './published-secrets.ts'

/** HS256 needs a key at least as long as its hash (RFC 7518, section 3.2). */
const LEAST_BYTES = 32

/** 32 random bytes hold fewer distinct values with a chance below 2^-100; hex text holds about 14. */
const LEAST_DISTINCT = 8

/** What the frequencies of its characters make of a secret, in bits; 32 random letters make about 130, and 100 once in a million. */
const LEAST_BITS = 96

/** Fewer than 39 digits are fewer than 128 bits. */
const FEW_DIGITS = /^\d{0,38}$/

/** Words of which the examples in manuals and forums are made. Random text does not hold them. */
const EXAMPLE_WORDS =
  /secret|passw|change|example|default|qwerty|abcdef|123456|random|token|jwt[-_ ]?key|sample|your[-_ ]|insecure|placeholder|replace|signing|letmein|lorem|development|production|256[-_ ]?bit|32[-_ ]?(?:char|byte)/i

/**
 * Pieces of what a well-known generator of "encryption keys" gives: one fixed walk over the keyboard in large steps,
 * from which only the place to start was drawn. Half the tutorials have a secret of its making.
 */
const WALKED =
  /aNdRgUkX|aPdSgVkY|bPeShVmY|bQeThWmZ|cQfTjWnZ|cRfUjXn2|p2s5v8y|p3s6v9y|q3t6w9z|q4t7w!z|r4u7x!A|r5u8x\//

/** At most 128 random bits, and the most common form among secrets found in public repositories. */
const UUID = /^\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?$/i

/** A word drawn from a list of 7,776, as people draw them, is worth 12.9 bits: ten are needed for 128. */
const LEAST_WORDS = 10

/** How many of the steps from one character to the next may be to a neighbour. In random text a third are. */
const MOST_STEPS = 0.7

/** Why this secret must not be used; `undefined` when nothing speaks against it. */
export function weakSecret(secret: Uint8Array): string | undefined {
  if (secret.length < LEAST_BYTES) return `the secret is shorter than ${LEAST_BYTES} bytes`
  if (new Set(secret).size < LEAST_DISTINCT) return 'the secret repeats a few characters'
  if (UUID.test(Buffer.from(secret).toString('latin1'))) {
    return 'the secret is a UUID or 128 bits written in hex, which is too little'
  }
  const weakness = readingsOf(secret)
    .map(weaknessOf)
    .find((found) => found !== undefined)
  return (
    weakness ??
    (estimatedBits(secret) < LEAST_BITS
      ? 'the secret repeats few characters, and so holds too little'
      : undefined)
  )
}

/** The bytes themselves and, where they are a text in hex or base64, the bytes that it stands for. */
function readingsOf(secret: Uint8Array): readonly Buffer[] {
  const text = Buffer.from(secret).toString('latin1')
  const readings = [Buffer.from(secret)]
  if (/^(?:[0-9a-f]{2})+$/i.test(text)) readings.push(Buffer.from(text, 'hex'))
  else if (/^[\w+/-]+={0,2}$/.test(text)) readings.push(Buffer.from(text, 'base64'))
  return readings
}

function weaknessOf(bytes: Buffer): string | undefined {
  const text = bytes.toString('latin1')
  if (isPublishedSecret(bytes) || EXAMPLE_WORDS.test(text) || WALKED.test(text)) {
    return 'the secret is a well-known one or reads like one'
  }
  if (FEW_DIGITS.test(text)) return 'the secret has too few digits'
  if (beginsAnew(bytes)) return 'the secret repeats a short piece'
  if (isWalk(text.toLowerCase())) return 'the secret is a sequence, or a walk over the keyboard'
  if (isPhrase(text)) return `the secret is a phrase of fewer than ${LEAST_WORDS} words`
  return undefined
}

/** Shannon's entropy of the secret's own frequencies: never more than its author put in, where they were drawn. */
function estimatedBits(secret: Uint8Array): number {
  const counts = new Map<number, number>()
  for (const byte of secret) counts.set(byte, (counts.get(byte) ?? 0) + 1)
  let bits = 0
  for (const count of counts.values()) bits += count * Math.log2(secret.length / count)
  return bits
}

/** Whether fewer bytes than a secret needs are written again and again. */
function beginsAnew(bytes: Buffer): boolean {
  const longest = Math.min(LEAST_BYTES - 1, bytes.length >> 1)
  for (let period = 1; period <= longest; period++) {
    if (bytes.subarray(period).equals(bytes.subarray(0, -period))) return true
  }
  return false
}

function isWalk(text: string): boolean {
  let steps = 0
  for (let at = 1; at < text.length; at++) {
    const apart = Math.abs(text.charCodeAt(at) - text.charCodeAt(at - 1))
    if (apart <= 1 || areNeighbours(text.charAt(at), text.charAt(at - 1))) steps++
  }
  return text.length > 1 && steps / (text.length - 1) > MOST_STEPS
}

/** Where each key of the usual keyboard lies: its row, and its place in it. */
const KEYS = new Map(
  [
    { keys: '1234567890-=', shift: 0 },
    { keys: 'qwertyuiop[]', shift: 0.5 },
    { keys: "asdfghjkl;'", shift: 0.75 },
    { keys: 'zxcvbnm,./', shift: 1.25 },
  ].flatMap(({ keys, shift }, row) => [...keys].map((key, at) => [key, { row, at: at + shift }] as const)),
)

function areNeighbours(one: string, other: string): boolean {
  const a = KEYS.get(one)
  const b = KEYS.get(other)
  return a !== undefined && b !== undefined && Math.abs(a.row - b.row) <= 1 && Math.abs(a.at - b.at) <= 1
}

/** Whether nothing but words, what stands between them and a number at the end; also words-run-together-LikeThis. */
function isPhrase(text: string): boolean {
  const words = text.match(/[A-Z]?[a-z]+/g) ?? []
  if (words.length < 2 || words.length >= LEAST_WORDS) return false
  // Digits anywhere else are no number that somebody added: random text of letters and a few digits has them.
  const before = text.replace(/\d{0,4}[!.?]*$/, '')
  return /^[ _.,'!?-]*$/.test(before.replace(/[A-Z]?[a-z]+/g, ''))
}
