/**
 * Keeps the keys of another issuer current: fetches its JWK Set (RFC 7517, section 5) every minute and for an unknown
 * kid, bounded in time and size, without redirects. The last good set stays while the issuer is down or its set is bad.
 * Problems contain neither the query of the URL, which may be a secret, nor anything of the response.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { FetchImplementation, JWK } from 'jose'
import * as errors from 'jose/errors'
import { createRemoteJWKSet, customFetch } from 'jose/jwks/remote'
import type { Logger } from '../ops/log.ts'
import { errorCode, type Loaded } from '../reload/files.ts'
import type { ReloadResult } from '../reload/reloadable.ts'
import { importKey, isKid, PRIVATE_MEMBERS } from './jwk.ts'
import { type FindKey, findKeyIn, type KeyRing, publicJwks, type VerificationKey } from './key-ring.ts'

export interface RemoteKeysOptions {
  readonly url: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** A different set has become the current one. */
  readonly onChange?: () => void
  readonly onFetch?: (result: ReloadResult) => void
}

const REFRESH_MS = 60_000

/** Between two fetches for unknown kids, and after a failed fetch. */
const COOLDOWN_MS = 5000

/** After a failed fetch before the first good set: nothing listens yet, so no request can ask for more fetches. */
const START_RETRY_MS = 1000

/** How long a request waits for a fetch in flight, which continues when the issuer takes longer. */
const WAIT_MS = 1000

/** Fetches until `stop`; its timer keeps the process alive. Nothing here rejects. */
export function createRemoteKeys({ url, log, now, onChange, onFetch }: RemoteKeysOptions) {
  const { origin, pathname } = new URL(url)
  const from = `${origin}${pathname}` // the query may be a secret
  const stopping = new AbortController()
  const load = createJwkSetLoader(url, { now, signal: stopping.signal })
  let ring: KeyRing = { verification: new Map() }
  let goodAt: number | undefined
  let lastFetch: ReloadResult | undefined
  let cooldownFrom = Number.NEGATIVE_INFINITY
  let reported = ''
  let fetching: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined
  let settleFirst: (loaded: boolean) => void = () => {}
  const first = new Promise<boolean>((resolve) => {
    settleFirst = resolve
  })
  const inRing = findKeyIn(() => ring)
  void fetchNow()

  const keySet = {
    ring: () => ring,
    /** Resolves with true once there is a good set, with false if it is stopped before. */
    firstSet: () => first,
    state: () => ({
      loaded: goodAt !== undefined,
      ...(goodAt !== undefined && { ageSeconds: Math.max(0, (now() - goodAt) / 1000) }),
      ...(lastFetch !== undefined && { lastFetch }),
    }),
    /** Fetches for an unknown kid, if due. Resolves within two seconds with whether the ring has it. */
    async fetchFor(kid: string): Promise<boolean> {
      // A fetch in flight may have begun before the key was published.
      await fetchInFlight()
      // The clock may be set back.
      const isDue = Math.abs(now() - cooldownFrom) >= COOLDOWN_MS
      if (!ring.verification.has(kid) && fetching === undefined && isDue) {
        cooldownFrom = now()
        void fetchNow()
      }
      if (!ring.verification.has(kid)) await fetchInFlight()
      return ring.verification.has(kid)
    },
    async reload(): Promise<void> {
      await fetching
      await fetchNow()
    },
    stop(): void {
      stopping.abort()
      clearTimeout(timer)
      settleFirst(false)
    },
  }

  const findKey: FindKey = (kid = '', alg) =>
    ring.verification.has(kid) || !isKid(kid)
      ? inRing(kid, alg)
      : keySet.fetchFor(kid).then(() => inRing(kid, alg))
  return { ...keySet, findKey }

  async function fetchInFlight(): Promise<void> {
    if (fetching !== undefined) await Promise.race([fetching, sleep(WAIT_MS, undefined, { ref: false })])
  }

  async function fetchNow(): Promise<void> {
    if (stopping.signal.aborted) return
    clearTimeout(timer)
    fetching ??= load()
      .then(apply)
      .catch((err: unknown) => log.error({ from, err }, 'a JWK Set could not be applied'))
      .finally(() => {
        fetching = undefined
        const retryMs = goodAt === undefined ? START_RETRY_MS : COOLDOWN_MS
        if (!stopping.signal.aborted) timer = setTimeout(fetchNow, lastFetch === 'ok' ? REFRESH_MS : retryMs)
      })
    await fetching
  }

  function apply(loaded: Loaded<KeyRing>): void {
    if (stopping.signal.aborted) return
    const isRecovered = lastFetch === 'failed' && goodAt !== undefined
    lastFetch = loaded.ok ? 'ok' : 'failed'
    const lines = loaded.ok ? loaded.warnings : loaded.problems
    const isNew = lines.join('\n') !== reported
    reported = lines.join('\n')
    if (loaded.ok) {
      if (isRecovered) log.info({ from }, 'the JWK Set can be used again')
      if (isNew) for (const warning of lines) log.warn({ from }, `JWK Set: ${warning}`)
      goodAt = now()
      settleFirst(true)
      // An equal set keeps the ring, and with it the cache of verified tokens.
      if (!isDeepStrictEqual(jwksByKid(ring), jwksByKid(loaded.value))) {
        ring = loaded.value
        log.info({ from, kids: [...ring.verification.keys()] }, 'a new JWK Set is active')
        onChange?.()
      }
    } else {
      const outcome = goodAt === undefined ? 'there is none yet' : 'the last good one stays active'
      if (isNew) log.error({ from, problems: lines }, `the JWK Set cannot be used, ${outcome}`)
      cooldownFrom = now()
    }
    onFetch?.(lastFetch)
  }
}

const jwksByKid = (ring: KeyRing) => new Map(publicJwks(ring).keys.map((jwk) => [jwk.kid, jwk]))

/** Counted after decompression. */
const MAX_BYTES = 1_048_576

/** Issuers have a handful; importing a key costs time. */
const MAX_KEYS = 100

/** The message follows "the JWK Set". */
class UnusableResponse extends Error {}

/** The loader never rejects; concurrent calls share a fetch. `now`: milliseconds; `timeoutMs`: to the last byte. */
export function createJwkSetLoader(
  url: string,
  options: { readonly now: () => number; readonly timeoutMs?: number; readonly signal?: AbortSignal },
): () => Promise<Loaded<KeyRing>> {
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

/** Keys that cannot be used are ignored with a warning, as sets may serve others, too. */
async function importJwkSet(keys: readonly JWK[], now: number): Promise<Loaded<KeyRing>> {
  if (keys.length > MAX_KEYS) throw new UnusableResponse(`holds more than ${MAX_KEYS} keys`)
  if (keys.some((jwk) => Object.keys(jwk).some((name) => PRIVATE_MEMBERS.has(name)))) {
    throw new UnusableResponse('holds a private or symmetric key, which has leaked and must be replaced')
  }
  const verification = new Map<string, VerificationKey>()
  const warnings: string[] = []
  for (const [index, jwk] of keys.entries()) {
    // Its `iat` is not used, so a wrong unit there is no reason to ignore the key.
    const imported = await importKey({ ...jwk, iat: undefined, signedUntil: undefined }, now)
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

/** Such as 6000 and 10080: a port of another protocol. */
const BLOCKED_PORT = 'cannot be fetched: the Fetch standard blocks its port; use another one'

function problemOf(error: unknown, timeoutMs: number): string {
  if (error instanceof UnusableResponse) return error.message
  if (error instanceof errors.JWKSTimeout) return `did not arrive within ${timeoutMs / 1000} s`
  if (error instanceof errors.JOSEError) return 'is not a JWK Set'
  // `fetch` has the code of the system or of undici in the cause.
  const cause = error instanceof Error ? error.cause : undefined
  if (cause instanceof Error && cause.message === 'bad port') return BLOCKED_PORT
  return `cannot be fetched: ${errorCode(cause)}`
}
