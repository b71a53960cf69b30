/**
 * Reads a JWK Set (RFC 7517, section 5) that another issuer publishes.
 *
 * In: the bytes. Out: a key ring that verifies and never signs. Each key is held to the rules for our own key
 * files: its one algorithm, its strength, its use. Keys that are not for us are left out with a warning, as a
 * set may be meant for others, too; so are all keys of a kid that stands twice, since nobody can say which is
 * meant. A private member in a public document is never read; it is warned of, since it has leaked.
 *
 * @module
 */
import type { Loaded } from '../reload/loaded.ts'
import { isJsonObject, parseStrictJson } from '../strict-json.ts'
import { importKey, isKid, PRIVATE_MEMBERS } from './jwk.ts'
import type { KeyRing, VerificationKey } from './key-ring.ts'

/** Issuers have a handful. Each costs an import, those of RSA some arithmetic on top. */
const MOST_KEYS = 100

/**
 * Parses a set. Never rejects.
 *
 * @param now - epoch seconds: when keys that do not tell it are taken to have been made
 */
export async function parseJwkSet(bytes: Uint8Array, now: number): Promise<Loaded<KeyRing>> {
  const parsed = parseStrictJson(bytes)
  const keys = parsed.ok && isJsonObject(parsed.value) ? parsed.value['keys'] : undefined
  if (!Array.isArray(keys)) return { ok: false, problems: ['is not a JWK Set'] }
  if (keys.length > MOST_KEYS) return { ok: false, problems: [`holds more than ${MOST_KEYS} keys`] }

  const verification = new Map<string, VerificationKey>()
  const warnings: string[] = []
  const twice = repeatedKids(keys)
  for (const [index, jwk] of keys.entries()) {
    const { key, notes } = await readKey(jwk, twice, now)
    if (key !== undefined) verification.set(key.kid, key)
    for (const note of notes) warnings.push(`keys[${index}] ${note}`)
  }
  if (verification.size > 0) return { ok: true, value: { verification }, warnings }
  return { ok: false, problems: ['holds no key that can be used', ...warnings] }
}

/** A key, where it can be used, and what is to be said of it. Notes quote nothing but a checked kid. */
interface ReadKey {
  readonly key?: VerificationKey
  readonly notes: readonly string[]
}

async function readKey(jwk: unknown, twice: ReadonlySet<string>, now: number): Promise<ReadKey> {
  if (!isJsonObject(jwk)) return leftOut('it is not a JSON object')
  const { kid, alg } = jwk
  if (typeof kid !== 'string' || !isKid(kid)) return leftOut('its kid is not 1 to 128 letters, digits, . _ -')
  if (isForOtherUse(jwk)) return leftOut(`${kid} is not for signatures`)
  if (twice.has(kid)) return leftOut(`the kid ${kid} stands in the set more than once`)
  if (alg === 'HS256') return leftOut(`${kid} is a secret that everyone can read`)

  const isPrivate = Object.keys(jwk).some((member) => PRIVATE_MEMBERS.has(member))
  const members = Object.entries(jwk).filter(([member]) => !PRIVATE_MEMBERS.has(member))
  const parsed = await importKey(Object.fromEntries(members), now)
  const leak = isPrivate ? [`${kid} comes with its private half: it must be replaced where it is from`] : []
  if (!parsed.ok) return { notes: [...leak, ...parsed.problems.map((why) => `left out: ${kid}: ${why}`)] }
  return { key: parsed.key.verification, notes: leak }
}

function leftOut(why: string): ReadKey {
  return { notes: [`left out: ${why}`] }
}

function isForOtherUse(jwk: Readonly<Record<string, unknown>>): boolean {
  return jwk['use'] !== undefined && jwk['use'] !== 'sig'
}

/** The kids of more than one key. Keys for other uses do not count: no token of ours names them. */
function repeatedKids(keys: readonly unknown[]): ReadonlySet<string> {
  const seen = new Set<unknown>()
  const twice = new Set<string>()
  for (const jwk of keys) {
    if (!isJsonObject(jwk) || isForOtherUse(jwk)) continue
    const { kid } = jwk
    if (typeof kid === 'string' && seen.has(kid)) twice.add(kid)
    seen.add(kid)
  }
  return twice
}
