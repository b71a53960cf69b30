/** Where an upstream is, and how a socket to one of its addresses is opened. In: the `url` of the setting. */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'

export interface UpstreamAddress {
  readonly tls: boolean
  /** As in `Host`. */
  readonly host: string
  /** The name that each connection looks up. Undefined for an IP address and a unix socket. */
  readonly name: string | undefined
  /**
   * Begins to connect. `ip`: an address of the name.
   * The socket emits `connect`, and under TLS `secureConnect` after it.
   * `onread` receives the bytes of TCP and unix sockets. TLS sockets emit `data` instead.
   */
  open(ip: string | undefined, onread: OnReadOpts): Socket
}

/**
 * Parses `http://…`, `https://…` or `unix:/path`.
 * Each connection calls `secureContext`. Default: the CAs of Node.
 */
export function upstreamAddress(upstreamUrl: string, secureContext?: () => SecureContext): UpstreamAddress {
  if (upstreamUrl.startsWith('unix:')) {
    const path = upstreamUrl.slice('unix:'.length)
    return {
      tls: false,
      host: 'localhost',
      name: undefined,
      open: (_ip, onread) => connectTcp({ path, onread }),
    }
  }
  const { protocol, host, hostname, port } = new URL(upstreamUrl)
  const bareHost = hostname.replace(/^\[|\]$/g, '')
  const name = isIP(bareHost) === 0 ? bareHost : undefined
  if (protocol === 'http:') {
    return {
      tls: false,
      host,
      name,
      open: (ip, onread) => connectTcp({ host: ip ?? bareHost, port: Number(port || 80), onread }),
    }
  }
  const defaultContext = createSecureContext()
  return {
    tls: true,
    host,
    name,
    open: (ip) =>
      connectTls({
        host: ip ?? bareHost,
        port: Number(port || 443),
        // The certificate must name the upstream's host, not a client's `Host`.
        servername: name ?? '',
        ALPNProtocols: ['http/1.1'],
        secureContext: secureContext?.() ?? defaultContext,
      }),
  }
}
