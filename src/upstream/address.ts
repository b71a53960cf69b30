/** Where an upstream is, and how a connection to it is opened. In: the `url` of the setting. Out: a function that opens a socket. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'
import { lookup } from '../http/hosts.ts'

/** `onread` receives the bytes of TCP and unix sockets. TLS sockets emit `data` instead. */
export interface UpstreamAddress {
  readonly tls: boolean
  readonly open: (onread: OnReadOpts) => Socket
  /** The host is a name, which each connection looks up, and not an IP address. */
  readonly isNamed: boolean
  readonly host: string
}

/** Parses `http://…`, `https://…` or `unix:/path`. Each connection calls `secureContext`. Default: the CAs of Node. */
export function upstreamAddress(upstreamUrl: string, secureContext?: () => SecureContext): UpstreamAddress {
  if (upstreamUrl.startsWith('unix:')) {
    const path = upstreamUrl.slice('unix:'.length)
    return { tls: false, open: (onread) => connectTcp({ path, onread }), isNamed: false, host: 'localhost' }
  }
  const { protocol, host, hostname, port } = new URL(upstreamUrl)
  const name = hostname.replace(/^\[|\]$/g, '')
  const isNamed = isIP(name) === 0
  const tls = protocol === 'https:'
  const options = { host: name, port: Number(port || (tls ? 443 : 80)), lookup }
  if (!tls) {
    return { tls, open: (onread) => connectTcp({ ...options, onread }), isNamed, host }
  }
  const defaultContext = createSecureContext()
  // The certificate must name the upstream's host, not a client's `Host`.
  const tlsOptions = { ...options, servername: isNamed ? name : '', ALPNProtocols: ['http/1.1'] }
  const open = () => connectTls({ ...tlsOptions, secureContext: secureContext?.() ?? defaultContext })
  return { tls, open, isNamed, host }
}
