/**
 * Fetches and imports the JWK Set of an issuer (RFC 7517, section 5), bounded in time and size.
 * In: its source and the accepted algorithms. Out: the usable keys, and a warning for each other key.
 * Follows no redirect. Problems quote neither the query of the URL, which may be a secret, nor the response.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { SecureContext } from 'node:tls'
import { failed, type Loaded, loaded, notLoaded, ok } from '../base/result.ts'
import { readBearerToken } from '../files/bearer-token.ts'
import { errorCode, readUpTo } from '../files/files.ts'
import { type GetOptions, get } from '../http/get.ts'
import { fitsType, importKey, PRIVATE_MEMBERS } from './jwk.ts'
import type { Algorithm, Key } from './key-ring.ts'

export interface KeySetSource {
  readonly jwksUrl: string
  /** A key without `alg` is used with each algorithm that fits its type. */
  readonly algorithms: readonly Algorithm[]
  /** Each fetch reads the file anew. */
  readonly bearerTokenFile?: string | undefined
  /** The CAs of the issuer; default: those of Node. */
  readonly secureContext?: (() => SecureContext) | undefined
}

const FETCH_MS = 5000
const MAX_BYTES = 1_048_576
/** After this number of imported keys, the event loop serves requests. */
const KEYS_PER_TURN = 20

/** Never rejects. Each problem is the rest of a sentence that begins with "the JWK Set". */
export async function fetchJwks(
  { jwksUrl, bearerTokenFile, secureContext }: KeySetSource,
  signal?: AbortSignal,
  timeoutMs = FETCH_MS,
): Promise<Loaded<readonly UncheckedJwk[]>> {
  const timeout = AbortSignal.timeout(timeoutMs)
  try {
    const bearer = bearerTokenFile === undefined ? undefined : await readBearerToken(bearerTokenFile)
    if (bearer?.ok === false) {
      return bearer
    }
    const headers: Record<string, string> = { Accept: 'application/jwk-set+json, application/json' }
    if (bearer !== undefined) {
      headers['Authorization'] = `Bearer ${bearer.value}`
    }
    const fetched = await fetchText(new URL(jwksUrl), {
      signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
      headers,
      secureContext: secureContext?.(),
    })
    if (!fetched.ok) {
      return notLoaded([fetched.error])
    }
    const keys = keysIn(JSON.parse(fetched.value))
    return keys === undefined ? notLoaded([NO_SET]) : loaded(keys)
  } catch (error) {
    if (timeout.aborted) {
      return notLoaded([`did not arrive within ${timeoutMs / 1000} s`])
    }
    return notLoaded([error instanceof SyntaxError ? NO_SET : `cannot be fetched: ${errorCode(error)}`])
  }
}

const NO_SET = 'is not a JWK Set'

/**
 * A zod schema would block the event loop at 10,000 keys.
 * A member that is no object becomes a key that is ignored.
 */
function keysIn(value: unknown): readonly UncheckedJwk[] | undefined {
  if (!(value instanceof Object) || !('keys' in value) || !Array.isArray(value.keys)) {
    return undefined
  }
  return value.keys.map((key: unknown) => (key instanceof Object ? shallow(key) : {}))
}

/** A used member of a key is a text or a list of texts. A deeper one could overflow the stack. */
const shallow = (key: object): UncheckedJwk =>
  Object.fromEntries(Object.entries(key).map(([name, value]) => [name, isNested(value) ? {} : value]))

const isNested = (value: unknown) => [value].flat().some((item) => item instanceof Object)

async function fetchText(url: URL, options: GetOptions) {
  const response = await get(url, { ...options, agent: false })
  try {
    if (response.statusCode !== 200) {
      return failed(`was answered with status ${response.statusCode}`)
    }
    const bytes = await readUpTo(response, MAX_BYTES)
    if (bytes.length > MAX_BYTES) {
      return failed(`is larger than ${MAX_BYTES} bytes`)
    }
    return ok(bytes.toString())
  } finally {
    response.destroy()
  }
}

export type UncheckedJwk = Readonly<Record<string, unknown>>

/** Ignores keys that cannot be used, because a set may serve other verifiers, too. Never rejects. */
export async function importKeys(jwks: readonly UncheckedJwk[], algorithms: readonly Algorithm[]) {
  const keys: Key[] = []
  const warnings: string[] = []
  for (const [index, jwk] of jwks.entries()) {
    if (index % KEYS_PER_TURN === KEYS_PER_TURN - 1) {
      await nextTurn()
    }
    if (jwk['use'] === 'enc') {
      continue
    }
    const imported = await importForAlgorithms(jwk, algorithms)
    if (imported.ok) {
      keys.push(...imported.value)
    } else {
      warnings.push(`keys[${index}] is ignored: ${imported.problems.join(', ')}`)
    }
  }
  if (keys.length === 0) {
    warnings.unshift('holds no key that can be used')
  }
  return { keys, warnings }
}

async function importForAlgorithms(jwk: UncheckedJwk, algorithms: readonly Algorithm[]) {
  if (Object.keys(jwk).some((name) => PRIVATE_MEMBERS.has(name))) {
    return notLoaded(['it is private or symmetric, so it has leaked and must be replaced'])
  }
  const { kid = '' } = jwk
  // The settings may repeat an algorithm. `findInSet` would find neither of two equal keys.
  const fitting = [...new Set(algorithms)].filter((alg) => fitsType(alg, jwk) && (jwk['alg'] ?? alg) === alg)
  if (fitting.length === 0) {
    return notLoaded([`its kty, crv or alg fits none of ${algorithms.join(', ')}`])
  }
  const keys: Key[] = []
  for (const alg of fitting) {
    // An `iat` in a wrong unit is no reason to ignore the key. Nothing shows when a key of a set was created.
    const imported = await importKey({ ...jwk, alg, kid, iat: undefined, signedUntil: undefined }, 0)
    if (!imported.ok) {
      return imported
    }
    // A key that serves several algorithms came without `alg`, and is published without `alg`.
    const { alg: _, ...publicJwk } = imported.value.publicJwk ?? {}
    keys.push(fitting.length > 1 ? { ...imported.value, publicJwk } : imported.value)
  }
  return loaded(keys)
}
