/**
 * Determines the peer of a client connection and the client's address.
 * In: the addresses of a connection, and the setting `forwarded.trust`.
 * Out: the peer, created once per connection. `X-Forwarded-*` and `Forwarded` (RFC 7239)
 * count only if this setting trusts the address of the peer that sent them.
 */
import { isIP, type Socket } from 'node:net'
import ipaddr from 'ipaddr.js'
import { flatCopy } from '../http/headers.ts'

/** The headers in which proxies say for which address they forward a request. */
interface ForwardedHeaders {
  readonly 'x-forwarded-for'?: string | readonly string[] | undefined
  readonly forwarded?: string | undefined
}

/** The other end of a connection: the client, or a proxy in front of it. */
export class Peer {
  /** An IPv4-mapped IPv6 address is written as IPv4. */
  readonly address: string
  readonly isTrusted: boolean
  readonly #trusts: (address: string) => boolean
  /**
   * The header lines without the host, rendered once for all requests of the connection.
   * Each request has its own host.
   */
  readonly #xForwardedLines: string
  readonly #forwardedStart: string

  constructor(address: string, trusts: (address: string) => boolean, proto: 'http' | 'https', port: number) {
    this.address = address
    this.isTrusted = trusts(address)
    this.#trusts = trusts
    const node = address.includes(':') ? `"[${address}]"` : address
    this.#xForwardedLines = `X-Forwarded-For: ${address}\r\nX-Forwarded-Proto: ${proto}\r\nX-Forwarded-Port: ${port}\r\n`
    this.#forwardedStart = `Forwarded: for=${node};proto=${proto}`
  }

  /**
   * Returns whole header lines. The host is quoted, because an unquoted value must not hold
   * `:` (RFC 7239, section 4).
   */
  forwardedLines(host: string | undefined): string {
    return host === undefined
      ? `${this.#xForwardedLines}${this.#forwardedStart}\r\n`
      : `${this.#xForwardedLines}X-Forwarded-Host: ${host}\r\n${this.#forwardedStart};host="${host}"\r\n`
  }

  /**
   * Returns the address of the peer. Behind trusted proxies: the last address of `X-Forwarded-For` that is
   * not trusted, or the first one if all are. Without this header, `Forwarded` has the addresses.
   */
  clientAddress(headers: ForwardedHeaders): string {
    let nearest = this.address
    if (!this.isTrusted) {
      return nearest
    }
    for (const node of forwardedNodes(headers)) {
      const address = addressOf(node)
      if (address === undefined) {
        break
      }
      nearest = address
      if (!this.#trusts(address)) {
        break
      }
    }
    return nearest
  }
}

/** Returns the function that creates the peers of one listener. `trust`: CIDRs and single addresses. */
export function createPeers(trust: readonly string[]) {
  const ranges = { trusted: trust.map(parseRange) }
  const trusts = (address: string) =>
    trust.length > 0 &&
    ipaddr.isValid(address) &&
    ipaddr.subnetMatch(ipaddr.parse(address), ranges, 'other') === 'trusted'
  return ({ remoteAddress = '' }: Pick<Socket, 'remoteAddress'>, tls: boolean, port: number): Peer => {
    const address = normalize(remoteAddress) ?? 'unknown'
    return new Peer(address, trusts, tls ? 'https' : 'http', port)
  }
}

/**
 * Returns the network whose logins are counted together: one machine with IPv6 usually owns a /64 (RFC 7421).
 */
export function clientNetwork(address: string): string {
  if (!ipaddr.isValid(address)) {
    return address
  }
  const parsed = ipaddr.process(address)
  // Behind NAT64 (RFC 6052), the last 32 bits are an IPv4 address: one /64 would be the whole internet.
  if (parsed.kind() === 'ipv4' || parsed.range() === 'rfc6052') {
    return parsed.toNormalizedString()
  }
  return `${new ipaddr.IPv6(parsed.toByteArray().fill(0, 8)).toNormalizedString()}/64`
}

/**
 * Parses an entry of `forwarded.trust`.
 * An IPv4-mapped range of 96 bits or more becomes an IPv4 range of 96 bits less.
 */
function parseRange(entry: string): [address: ipaddr.IPv4 | ipaddr.IPv6, bits: number] {
  const range = entry.includes('/') ? entry : `${entry}/${isIP(entry) === 6 ? 128 : 32}`
  const [address, bits] = ipaddr.parseCIDR(range)
  const isMapped = address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() && bits >= 96
  return isMapped ? [address.toIPv4Address(), bits - 96] : [address, bits]
}

/** Returns the addresses as written, the last one first. */
function forwardedNodes(headers: ForwardedHeaders): string[] {
  const { 'x-forwarded-for': forwardedFor, forwarded } = headers
  if (forwardedFor !== undefined) {
    return splitFromEnd(String(forwardedFor), ',')
  }
  return splitFromEnd(forwarded ?? '', ',').map(forParameter)
}

/** Returns the value of `for` in an element of `Forwarded` (RFC 7239, section 4), or an empty text. */
function forParameter(element: string): string {
  for (const pair of splitFromEnd(element, ';')) {
    const value = /^for=("?)([^"]+)\1$/i.exec(pair)?.[2]
    if (value !== undefined) {
      return value
    }
  }
  return ''
}

/**
 * Splits a list at a separator outside of quotes.
 * Returns the last member first, without empty members. Counts the quotes from the end: a client,
 * whose text comes first, cannot change how the members that proxies have added are read.
 */
function splitFromEnd(list: string, separator: string): string[] {
  const members: string[] = []
  let isQuoted = false
  let end = list.length
  for (let at = list.length - 1; at >= 0; at--) {
    if (list[at] === '"') {
      isQuoted = !isQuoted
    }
    if (list[at] === separator && !isQuoted) {
      members.push(list.slice(at + 1, end).trim())
      end = at
    }
  }
  members.push(list.slice(0, end).trim())
  return members.filter((member) => member !== '')
}

/**
 * Parses `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`, and the forms with a port:
 * `192.0.2.1:80`, `[2001:db8::1]:80`. A port may be obfuscated: `_hidden` (RFC 7239, section 6.3).
 */
function addressOf(node: string): string | undefined {
  const withoutPort = /^(\[[^\]]*\]|[^:]*):(?:\d{1,5}|_[\w.-]+)$/.exec(node)?.[1] ?? node
  const inBrackets = /^\[([^\]]*)\]$/.exec(withoutPort)?.[1]
  if (inBrackets === undefined) {
    return normalize(withoutPort)
  }
  return isIP(inBrackets) === 6 ? normalize(inBrackets) : undefined
}

/** Returns the canonical form of an IP address without its zone index, or undefined. */
function normalize(text: string): string | undefined {
  if (isIP(text) === 4) {
    return flatCopy(text)
  }
  const bare = text.replace(/%.*$/, '')
  return isIP(text) === 6 && ipaddr.isValid(bare) ? ipaddr.process(bare).toString() : undefined
}
