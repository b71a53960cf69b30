/**
 * Looks up the hosts of key sets and of the database. libuv has two threads for all lookups of a process and cannot abort
 * one, and that of a host whose DNS server is silent takes up to a minute: connections to upstreams would wait, too.
 */
import dns from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import pLimit from 'p-limit'

/** One lookup for each host. */
const pending = new Map<string, ReturnType<typeof lookUp>>()
/** Hosts whose last lookup has failed: further ones take one thread in all. */
const failing = new Set<string>()
const oneAtATime = pLimit(1)

async function lookUp(host: string) {
  const ask = () => dns.lookup(host, { all: true })
  try {
    const addresses = await (failing.has(host) ? oneAtATime(ask) : ask())
    failing.delete(host)
    return addresses
  } catch (error) {
    failing.add(host)
    throw error
  } finally {
    pending.delete(host)
  }
}

/** An option of `http.get` and `socket.connect`. */
export const lookup: LookupFunction = (host, { all }, callback) => {
  const found = pending.get(host) ?? lookUp(host)
  pending.set(host, found)
  found.then(
    (addresses) =>
      all ? callback(null, addresses) : callback(null, addresses[0]?.address ?? '', addresses[0]?.family),
    (error: NodeJS.ErrnoException) => callback(error, []),
  )
}
