/**
 * One pod of a fleet, simulated: its real token cache under a made-up clock, fed with made-up requests.
 *
 * In: how popular the tokens are that come to this pod, how often requests come, how much it remembers and for how long.
 * Out: the share of requests answered from memory. A fleet behind a load balancer that knows nothing of tokens is this
 * pod many times over: each of its pods sees an independent sample of the same popularity. The same seed gives the
 * same result.
 *
 * @module
 */
import { createTokenCache, type TokenCache } from '../../src/token/cache.ts'
import { seeded, zipf } from '../lab/zipf.ts'

/** What comes to the pod, and what it remembers. */
export interface PodOptions {
  /** Tokens in use that can come to this pod. */
  readonly tokens: number
  /** Zipf's exponent: 0 is all alike, 1 what is seen where some clients are busy and most are not. */
  readonly exponent: number
  /** Mean of the requests a second; they come at random (a Poisson process). */
  readonly requestsPerSecond: number
  readonly cacheTokens: number
  readonly maxAgeSeconds: number
  /** Seconds between two changes of keys, credentials or revocations: each empties the cache. Default: none. */
  readonly changeEverySeconds?: number
  readonly seed: number
}

/** How it went, after a time that is not counted in which the cache filled. */
export interface PodOutcome {
  /** Share of requests answered from memory. */
  readonly hitRatio: number
  /** Requests a second that had to be verified. */
  readonly verifiedPerSecond: number
  /** Tokens remembered at the end. */
  readonly remembered: number
  /** The share in each of the sixty seconds after the cache was emptied at the very end. */
  readonly afterEmptying: readonly number[]
}

const LEAST_COUNTED_SECONDS = 120
const SECONDS_AFTER_EMPTYING = 60

/** Simulates a pod: as long as an entry lives to fill the cache, as long again (at least 120 s) that counts, and an emptying. */
export async function simulatePod(options: PodOptions): Promise<PodOutcome> {
  const { maxAgeSeconds, changeEverySeconds = Number.POSITIVE_INFINITY } = options
  let now = 0
  const cache = createTokenCache({
    verify: verified,
    maxTokens: options.cacheTokens,
    maxAgeSeconds,
    now: () => now,
  })
  const ask = requester(cache, options)
  const filled = maxAgeSeconds * 1000
  // Whole lives of entries: those that were remembered together are forgotten together.
  const end = filled + Math.max(LEAST_COUNTED_SECONDS, maxAgeSeconds) * 1000
  let nextChange = changeEverySeconds * 1000

  while (now < end) {
    const before = now
    now += ask.pause()
    for (; nextChange <= now; nextChange += changeEverySeconds * 1000) cache.clear()
    if (before < filled && now >= filled) ask.counts = { requests: 0, hits: 0 }
    await ask.one()
  }
  const counted = ask.counts
  const remembered = cache.size
  cache.clear()
  const emptied = now
  const afterEmptying: number[] = []
  for (let second = 1; second <= SECONDS_AFTER_EMPTYING; second++) {
    ask.counts = { requests: 0, hits: 0 }
    for (; now < emptied + second * 1000; now += ask.pause()) await ask.one()
    afterEmptying.push(ask.counts.hits / ask.counts.requests)
  }
  const verifiedPerSecond = ((counted.requests - counted.hits) * 1000) / (end - filled)
  return { hitRatio: counted.hits / counted.requests, verifiedPerSecond, remembered, afterEmptying }
}

interface Counts {
  requests: number
  hits: number
}

/** Makes requests; `pause` is the milliseconds to the next one. */
function requester(cache: TokenCache, { tokens, exponent, requestsPerSecond, seed }: PodOptions) {
  const random = seeded(seed)
  const rank = zipf(tokens, exponent, random)
  const asking = {
    counts: { requests: 0, hits: 0 } satisfies Counts as Counts,
    pause: () => (-Math.log(1 - random()) * 1000) / requestsPerSecond,
    async one(): Promise<void> {
      const { hits } = cache
      const verdict = cache.verify(tokenOf(rank()))
      if (verdict instanceof Promise) await verdict
      asking.counts.requests++
      asking.counts.hits += cache.hits - hits
    },
  }
  return asking
}

/** A text that the cache takes for a token. */
function tokenOf(rank: number): string {
  return `AAAA.AAAA.${rank.toString(16).padStart(8, '0')}`
}

async function verified() {
  const identity = { accountId: 'a', accessKey: 'k', tokenId: 't', expiresAt: Number.MAX_SAFE_INTEGER }
  return { ok: true as const, identity, usableUntil: Number.POSITIVE_INFINITY }
}
