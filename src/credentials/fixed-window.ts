/** Counts events by key, such as the failed logins of a client, within a window that begins with the first of them. */
import { LRUCache } from 'lru-cache'

const MAX_KEYS = 50_000

/** A value is forgotten when a window has passed since its key was first set. @param now - monotonic milliseconds */
export const createFixedWindow = <V extends object>(windowSeconds: number, now = () => performance.now()) =>
  new LRUCache<string, V>({
    // Not `max`, which allocates memory for all entries at the start, and clears it with the last one.
    maxSize: MAX_KEYS,
    sizeCalculation: () => 1,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    noUpdateTTL: true,
    ttlResolution: 0,
    perf: { now },
  })

/** Seconds until the key is forgotten, at least 1. */
export const secondsLeft = <V extends object>(window: LRUCache<string, V>, key: string) =>
  Math.max(1, Math.ceil(window.getRemainingTTL(key) / 1000))
