/** Hosts of listeners, upstreams, key sets and the database: how they are looked up and shown. */
import { ADDRCONFIG, type LookupAddress } from 'node:dns'
import dns from 'node:dns/promises'
import { isIPv6, type LookupFunction } from 'node:net'

/**
 * Whether only this machine can connect to `host`, which is a name, or an address with or without brackets.
 */
export const isLoopback = (host: string): boolean => /^(?:localhost|127\.[\d.]+|::1|\[::1\])$/.test(host)

export const isHttps = (url = ''): boolean => /^https:/i.test(url)

/** Returns what may be shown of a URL: its scheme, host and port, or the path of a unix socket. */
export function withoutPath(url: string): string {
  if (url.startsWith('unix:')) {
    return url
  }
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}

/**
 * libuv has two threads for all lookups of a process, and cannot abort a lookup.
 * A silent DNS server blocks its thread for up to a minute.
 * With one lookup for each host at a time, one silent host leaves a thread free.
 */
const runningLookups = new Map<string, Promise<LookupAddress[]>>()

/** Resolves to at least one address. Rejects with the error of Node's lookup. */
export function lookupAddresses(host: string): Promise<LookupAddress[]> {
  const shared = runningLookups.get(host)
  if (shared !== undefined) {
    return shared
  }
  // Node's own lookups for sockets have the same hint.
  const addresses = dns
    .lookup(host, { all: true, hints: ADDRCONFIG })
    .finally(() => runningLookups.delete(host))
  runningLookups.set(host, addresses)
  return addresses
}

/** An option of `http.get` and `socket.connect`. */
export const lookup: LookupFunction = (host, { all }, callback) => {
  lookupAddresses(host).then(
    (addresses) => {
      if (all) {
        callback(null, addresses)
      } else {
        callback(null, addresses[0]?.address ?? '', addresses[0]?.family)
      }
    },
    (error: NodeJS.ErrnoException) => callback(error, []),
  )
}

/**
 * A registered name (RFC 3986, section 3.2.2) or an IPv6 address.
 * The comma is excluded, because it separates lists.
 */
const HOST = /^(?:[\w.~!$&'()*+;=%-]+|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{0,5}))?$/

/** Whether a `Host` value is one host and at most one port, without userinfo, lists or a zone index. */
export function isHost(value: string): boolean {
  const match = HOST.exec(value)
  if (match === null) {
    return false
  }
  const [, ipv6, port = 0] = match
  return (ipv6 === undefined || isIPv6(ipv6)) && Number(port) <= 65535
}
