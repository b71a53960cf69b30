/**
 * Determines the peer of a client connection and the client's address.
 * In: the addresses of a connection, and the setting `forwarded.trust`. Out: the peer, created once per connection.
 * `X-Forwarded-*` and `Forwarded` (RFC 7239) from a client count only when its address is trusted.
 */
import { BlockList, isIP, SocketAddress } from 'node:net'

export interface Peer {
  /** IPv4-mapped IPv6 as IPv4. */
  readonly address: string
  readonly trusted: boolean
  /** Without that of the host; each with its line end. */
  readonly xForwardedLines: string
  /** `Forwarded` up to the host. */
  readonly forwardedPrefix: string
}

/** `trust`: CIDRs and single addresses. */
export function createAddresses(trust: readonly string[]) {
  const trusted = trustList(trust)
  let port: number | undefined
  return {
    peerOf(
      socket: { readonly remoteAddress?: string | undefined; readonly localPort?: number | undefined },
      tls: boolean,
    ): Peer {
      port ??= socket.localPort // the listener's: read once, because it is a system call
      const address = normalize(socket.remoteAddress ?? '') ?? 'unknown'
      const proto = tls ? 'https' : 'http'
      return {
        address,
        trusted: trust.length > 0 && isTrusted(trusted, address),
        xForwardedLines:
          `X-Forwarded-For: ${address}\r\nX-Forwarded-Proto: ${proto}\r\n` +
          `X-Forwarded-Port: ${port ?? (tls ? 443 : 80)}\r\n`,
        forwardedPrefix: `Forwarded: for=${address.includes(':') ? `"[${address}]"` : address};proto=${proto}`,
      }
    },
    /** Returns the peer's address or, behind trusted proxies, the nearest of `X-Forwarded-For` that is not trusted. */
    clientAddress(peer: Peer, forwardedFor: string | readonly string[] | undefined): string {
      let nearest = peer.address
      if (!peer.trusted || forwardedFor === undefined) return nearest
      for (const text of String(forwardedFor).split(',').reverse()) {
        const address = normalize(text.trim())
        if (address === undefined) break
        nearest = address
        if (!isTrusted(trusted, address)) break
      }
      return nearest
    },
  }
}

/** One list per family: in an IPv6 range such as `::/64` Node finds every IPv4 address, as IPv4-mapped. */
interface TrustList {
  readonly ipv4: BlockList
  readonly ipv6: BlockList
}

function trustList(trust: readonly string[]): TrustList {
  const list = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const entry of trust) {
    const [text = '', bits] = entry.split('/')
    const address = normalize(text)
    if (address === undefined) throw new Error(`not an address or CIDR: ${entry}`)
    const prefix = Number(bits ?? (isIP(text) === 6 ? 128 : 32))
    // An IPv4-mapped range has 96 bits more than its IPv4 range; a shorter one (`::ffff:0:0/64`) is an IPv6 range.
    if (isIP(text) === 4) list.ipv4.addSubnet(address, prefix, 'ipv4')
    else if (isIP(address) === 4 && prefix >= 96) list.ipv4.addSubnet(address, prefix - 96, 'ipv4')
    else list.ipv6.addSubnet(text, prefix, 'ipv6')
  }
  return list
}

function isTrusted(list: TrustList, address: string): boolean {
  const version = isIP(address)
  if (version === 0) return false
  const family = version === 6 ? 'ipv6' : 'ipv4'
  return list[family].check(address, family)
}

/** Returns the canonical form of an IP address without its zone index, or undefined. */
function normalize(text: string): string | undefined {
  const family = isIP(text)
  if (family === 4) return text
  if (family === 0) return undefined
  const { address } = new SocketAddress({ address: text.replace(/%.*$/, ''), family: 'ipv6' })
  return /^::ffff:([0-9.]+)$/i.exec(address)?.[1] ?? address
}
