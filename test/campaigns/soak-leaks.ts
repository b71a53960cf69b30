/**
 * Whether a sidecar is back to where it was.
 *
 * In: what was seen of it at rest, before and after. Out: what has grown beyond its bound.
 *
 * @module
 */
import type { SidecarProcess } from './sidecar-process.ts'

/** A sidecar at rest, as seen from outside. */
export interface AtRest {
  readonly descriptors: number
  /** Sockets, servers and pipes that the process holds. */
  readonly handles: number
  readonly inFlight: number
  readonly clientConnections: number
  readonly upstreamConnections: number
  readonly queued: number
  readonly cachedTokens: number
  readonly heapBytes: number
  readonly residentBytes: number
}

/**
 * How much the heap may grow, in bytes. Measured after a forced collection, so nothing that is only waiting to be
 * collected counts; what stays is code that V8 compiled meanwhile and its type feedback (1 to 3 MB), counters of
 * statuses that had not been seen before, and the table of judged header names.
 */
const HEAP_GROWTH = 6 * 1024 * 1024
/** What a cached token may cost: its digest, its identity, the entry. */
const BYTES_PER_TOKEN = 2048

/** Looks at a sidecar that has nothing to do. The smallest of a few looks counts: a scrape is work itself. */
export async function lookAtRest(sidecar: SidecarProcess, looks = 4): Promise<AtRest> {
  const all: AtRest[] = []
  for (let look = 0; look < looks; look++) {
    process.kill(sidecar.pid, 'SIGUSR2') // collects garbage
    await new Promise((resolve) => setTimeout(resolve, 300))
    const metrics = await sidecar.metrics()
    const value = (name: string) => metrics.get(name) ?? 0
    const sum = (prefix: string) =>
      [...metrics].reduce((all, [series, value]) => (series.startsWith(prefix) ? all + value : all), 0)
    all.push({
      descriptors: sidecar.descriptors(),
      handles: sum('nodejs_active_handles{'),
      inFlight: value('auth_sidecar_requests_in_flight'),
      clientConnections: value('auth_sidecar_client_connections'),
      upstreamConnections: value('auth_sidecar_upstream_connections{upstream="/"}'),
      queued: value('auth_sidecar_upstream_queue{upstream="/"}'),
      cachedTokens: value('auth_sidecar_token_cache_entries'),
      heapBytes: value('nodejs_heap_size_used_bytes'),
      residentBytes: sidecar.residentBytes(),
    })
  }
  return all.reduce((least, other) => {
    const names = Object.keys(least) as (keyof AtRest)[]
    return Object.fromEntries(
      names.map((name) => [name, Math.min(least[name], other[name])]),
    ) as unknown as AtRest
  })
}

/** What has grown beyond its bound, in words. */
export function leaks(before: AtRest, after: AtRest): string[] {
  const found: string[] = []
  const counts = [
    'descriptors',
    'handles',
    'inFlight',
    'clientConnections',
    'upstreamConnections',
    'queued',
  ] as const
  for (const name of counts) {
    if (after[name] > before[name])
      found.push(`${name}: ${before[name]} at the start, ${after[name]} at the end`)
  }
  const tokens = Math.max(0, after.cachedTokens - before.cachedTokens)
  const bound = before.heapBytes + HEAP_GROWTH + tokens * BYTES_PER_TOKEN
  if (after.heapBytes > bound) found.push(`heap: ${after.heapBytes} bytes, with ${bound} allowed`)
  return found
}
