/** Hosts of listeners, upstreams, key sets and the database: how they are looked up and shown. */
import { ADDRCONFIG } from 'node:dns'
import dns from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import pLimit from 'p-limit'

/** Whether only this machine connects to the host: a name or an address, in brackets or not. */
export function isLoopback(host: string): boolean {
  return /^(?:localhost|127\.[\d.]+|::1|\[::1\])$/.test(host)
}

/** Scheme, host and port of an upstream, or the path of its socket: a URL may hold more. */
export function withoutPath(url: string): string {
  if (url.startsWith('unix:')) return url
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}

/**
 * libuv has two threads for all lookups of a process and cannot abort one, and that of a host whose DNS server is silent
 * takes up to a minute: other hosts would wait, too. So there is one lookup for each host at a time.
 */
const running = new Map<string, ReturnType<typeof resolveTimed>>()
/** Hosts whose last lookup was slow: further ones take one thread in all. A host that fails at once blocks no thread. */
const slow = new Set<string>()
const SLOW_MS = 1000
const oneAtATime = pLimit(1)

function resolveOnce(host: string) {
  const shared = running.get(host)
  if (shared !== undefined) return shared
  const addresses = slow.has(host) ? oneAtATime(resolveTimed, host) : resolveTimed(host)
  running.set(host, addresses)
  return addresses.finally(() => running.delete(host))
}

async function resolveTimed(host: string) {
  const startedAt = performance.now()
  try {
    return await dns.lookup(host, { all: true, hints: ADDRCONFIG }) // the hint of Node's own lookups for sockets
  } finally {
    if (performance.now() - startedAt > SLOW_MS) slow.add(host)
    else slow.delete(host)
  }
}

/** An option of `http.get` and `socket.connect`. */
export const lookup: LookupFunction = (host, { all }, callback) => {
  resolveOnce(host).then(
    (addresses) =>
      all ? callback(null, addresses) : callback(null, addresses[0]?.address ?? '', addresses[0]?.family),
    (error: NodeJS.ErrnoException) => callback(error, []),
  )
}
