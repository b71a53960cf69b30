/**
 * How an upstream is reached.
 *
 * In: its URL. Out: the function that begins to connect to it, over TCP, TLS or a unix socket.
 *
 * @module
 */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'

/** One upstream as the settings give it. */
export interface UpstreamSettings {
  readonly prefix: string
  /** `http://…`, `https://…` or `unix:/path`. */
  readonly url: string
}

/**
 * Begins to connect.
 *
 * @param onread - takes the bytes read straight from the operating system, in place of `data` events; not every
 *   transport can do that
 */
export type Connect = (onread?: OnReadOpts) => Socket

/** How to reach an upstream. */
export interface UpstreamAddress {
  readonly connect: Connect
  readonly readyEvent: 'connect' | 'secureConnect'
  /** What `Host` names where a request has none. */
  readonly host: string
}

/**
 * Reads an upstream's URL.
 *
 * @param secureContext - gives what a new connection over TLS is made with; default: the public authorities, and no
 *   certificate of ours
 */
export function upstreamAddress(
  settings: UpstreamSettings,
  secureContext?: () => SecureContext,
): UpstreamAddress {
  if (settings.url.startsWith('unix:')) {
    const path = settings.url.slice('unix:'.length)
    return {
      connect: (onread) => connectTcp({ path, ...reading(onread) }),
      readyEvent: 'connect',
      host: 'localhost',
    }
  }
  const url = new URL(settings.url)
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const tls = url.protocol === 'https:'
  const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port)
  if (!tls) {
    const address = { host: hostname, port }
    return {
      connect: (onread) => connectTcp({ ...address, ...reading(onread) }),
      readyEvent: 'connect',
      host: url.host,
    }
  }
  const current = secureContext ?? constant(createSecureContext())
  // The name that the certificate must carry is the upstream's; a client's `Host` has no say in it.
  const servername = isIP(hostname) === 0 ? hostname : ''
  const options = { host: hostname, port, servername, ALPNProtocols: ['http/1.1'] }
  return {
    connect: () => connectTls({ ...options, secureContext: current() }),
    readyEvent: 'secureConnect',
    host: url.host,
  }
}

const constant =
  <T>(value: T) =>
  () =>
    value

const reading = (onread: OnReadOpts | undefined) => (onread === undefined ? {} : { onread })
