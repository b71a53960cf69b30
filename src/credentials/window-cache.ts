/** Values that are forgotten when a window has passed since their key was first set. */
import { LRUCache } from 'lru-cache'

const MAX_KEYS = 50_000

/** @param now - monotonic milliseconds */
export const createWindowCache = <V extends object>(windowSeconds: number, now: () => number) =>
  new LRUCache<string, V>({
    // Not `max`, which allocates memory for all entries at the start, and clears it with the last one: 100 µs a login.
    maxSize: MAX_KEYS,
    sizeCalculation: () => 1,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    noUpdateTTL: true,
    ttlResolution: 0,
    perf: { now },
  })

/** Whole seconds until the key is forgotten, at least 1. */
export const secondsLeft = <V extends object>(cache: LRUCache<string, V>, key: string) =>
  Math.max(1, Math.ceil(cache.getRemainingTTL(key) / 1000))
