/**
 * Loads the JWK Set (RFC 7517, section 5) of another issuer, in bounded time and size, without following redirects.
 * In: its URL. Out: a key ring that only verifies, or every problem. Problems contain neither the URL, whose query may
 * be a secret, nor anything of the response.
 */
import type { FetchImplementation, JWK } from 'jose'
import * as errors from 'jose/errors'
import { createRemoteJWKSet, customFetch } from 'jose/jwks/remote'
import { fileErrorCode } from '../reload/files.ts'
import type { Load, Loaded } from '../reload/loaded.ts'
import { importKey, PRIVATE_MEMBERS } from './jwk.ts'
import type { KeyRing, VerificationKey } from './key-ring.ts'

/** Counted after decompression. */
const MAX_BYTES = 1_048_576

/** Issuers have a handful; importing a key costs time. */
const MAX_KEYS = 100

/** A response that is no JWK Set. The message follows "the JWK Set". */
class UnusableResponse extends Error {}

/**
 * Creates a function that fetches the set and checks its keys. Calls at the same time share one fetch.
 *
 * @param options - `now`: epoch milliseconds; `timeoutMs`: to the last byte, default 5000; `signal`: ends the fetches
 */
export function createJwkSetLoader(
  url: string,
  options: { readonly now: () => number; readonly timeoutMs?: number; readonly signal?: AbortSignal },
): Load<KeyRing> {
  const { now, timeoutMs = 5000, signal = new AbortController().signal } = options
  // The resolver of jose is not used: the key ring finds keys. Its cooldown would not count failed fetches.
  const jwkSet = createRemoteJWKSet(new URL(url), {
    timeoutDuration: timeoutMs,
    cacheMaxAge: Number.POSITIVE_INFINITY,
    [customFetch]: (href, init) =>
      fetchBounded(href, { ...init, signal: AbortSignal.any([init.signal, signal]) }),
  })
  return async () => {
    try {
      await jwkSet.reload()
      return await importJwkSet(jwkSet.jwks()?.keys ?? [], Math.floor(now() / 1000))
    } catch (error) {
      return { ok: false, problems: [problemOf(error, timeoutMs)] }
    }
  }
}

/**
 * Imports the keys of a set under the rules for key files. A key that cannot be used is ignored with a warning, as
 * sets may serve others, too. A set with a private or symmetric key is refused: that key has leaked.
 */
async function importJwkSet(keys: readonly JWK[], now: number): Promise<Loaded<KeyRing>> {
  if (keys.length > MAX_KEYS) throw new UnusableResponse(`holds more than ${MAX_KEYS} keys`)
  if (keys.some((jwk) => Object.keys(jwk).some((name) => PRIVATE_MEMBERS.has(name)))) {
    throw new UnusableResponse('holds a private or symmetric key, which has leaked and must be replaced')
  }
  const verification = new Map<string, VerificationKey>()
  const warnings: string[] = []
  for (const [index, jwk] of keys.entries()) {
    const imported = await importKey(jwk, now)
    if (!imported.ok) {
      warnings.push(`keys[${index}] is ignored: ${imported.problems.join(', ')}`)
      continue
    }
    const key = imported.value.verification
    if (verification.has(key.kid)) throw new UnusableResponse(`holds two keys with the kid ${key.kid}`)
    verification.set(key.kid, key)
  }
  if (verification.size > 0) return { ok: true, value: { verification }, warnings }
  return { ok: false, problems: ['holds no key that can be used', ...warnings] }
}

const fetchBounded: FetchImplementation = async (href, options) => {
  const { status, body } = await fetch(href, options)
  if (status !== 200) {
    await body?.cancel()
    throw new UnusableResponse(`was answered with status ${status}`)
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.length
    if (size > MAX_BYTES) throw new UnusableResponse(`is larger than ${MAX_BYTES} bytes`)
    chunks.push(chunk)
  }
  return new Response(Buffer.concat(chunks))
}

function problemOf(error: unknown, timeoutMs: number): string {
  if (error instanceof UnusableResponse) return error.message
  if (error instanceof errors.JWKSTimeout) return `did not arrive within ${timeoutMs / 1000} s`
  if (error instanceof errors.JOSEError) return 'is not a JWK Set'
  // `fetch` has the code of the system or of undici in the cause.
  const cause = error instanceof Error ? error.cause : undefined
  return `cannot be fetched: ${fileErrorCode(cause)}`
}
