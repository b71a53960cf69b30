/**
 * Says what keeps a text from being a token that is looked at, in words for the person who holds it.
 *
 * In: a text that was refused as malformed. Out: one sentence that repeats nothing of it. The verifier does not
 * ask: one pattern is enough for it.
 *
 * @module
 */
import { isJsonObject, parseStrictJson } from '../strict-json.ts'
import { REFUSED_PARAMETERS } from './protected-header.ts'
import { MOST_TOKEN_BYTES } from './shape.ts'

const PARTS = ['header', 'payload', 'signature']

/** What is wrong with a malformed token. */
export function malformationOf(token: string): string {
  if (/^bearer\s/i.test(token)) return 'It begins with the scheme: give what follows Bearer.'
  if (token.length > MOST_TOKEN_BYTES) {
    return `It has ${token.length} characters; more than ${MOST_TOKEN_BYTES} are not looked at.`
  }
  const parts = token.split('.')
  if (parts.length === 5)
    return 'It has five parts, as an encrypted token has; only signed ones are accepted.'
  if (parts.length === 1) return 'It has one part; a signed token has three, with points between them.'
  if (parts.length !== 3)
    return `It has ${parts.length} parts with points between them; a signed token has three.`
  for (const [index, part] of parts.entries()) {
    const problem = partProblem(part)
    if (problem !== undefined) return `Its ${PARTS[index]} ${problem}.`
  }
  return headerProblem(Buffer.from(String(parts[0]), 'base64url'))
}

function partProblem(part: string): string | undefined {
  if (part === '') return 'is empty'
  if (/^[\w-]+=+$/.test(part)) return 'has = at its end, which base64url without padding does not have'
  if (!/^[\w-]+$/.test(part)) return 'holds characters that are not base64url'
  const canonical = Buffer.from(part, 'base64url').toString('base64url')
  return canonical === part
    ? undefined
    : 'is not the one spelling in base64url of what it stands for, or was cut'
}

function headerProblem(bytes: Uint8Array): string {
  const parsed = parseStrictJson(bytes)
  if (!parsed.ok || !isJsonObject(parsed.value)) {
    return 'Its header is no JSON object in UTF-8, or names a member twice.'
  }
  const header = parsed.value
  const refused = REFUSED_PARAMETERS.find((name) => header[name] !== undefined)
  if (refused !== undefined) return `Its header holds ${refused}, with which no token is accepted.`
  return `Its ${typeof header['alg'] === 'string' ? 'kid' : 'alg'} is not a string.`
}
