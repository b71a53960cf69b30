/**
 * Counts per key in a window that begins with the first event of the key.
 * Bounded: an idle key is evicted first.
 */
import { LRUCache } from 'lru-cache'

const MAX_KEYS = 50_000

/** A value expires one window after its key was first set. */
export const createFixedWindow = <V extends object>(
  windowSeconds: number,
  monotonicNow = () => performance.now(),
) =>
  new LRUCache<string, V>({
    // `max` would allocate the memory of all entries at the start, and clear all of it with the last entry.
    maxSize: MAX_KEYS,
    sizeCalculation: () => 1,
    ttl: windowSeconds * 1000 - 1, // an entry is stale once it is older than this
    noUpdateTTL: true,
    ttlResolution: 0,
    perf: { now: monotonicNow },
  })

/** Seconds until the value of the key expires, at least 1. */
export const secondsLeft = <V extends object>(window: LRUCache<string, V>, key: string) =>
  Math.max(1, Math.ceil(window.getRemainingTTL(key) / 1000))
