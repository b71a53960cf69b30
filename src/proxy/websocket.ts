/**
 * WebSocket pass-through (RFC 6455). A handshake is forwarded like any request; http-proxy's stock pass has no timeouts.
 * In: the upstream's 101. Out: bytes in both directions until a side closes, the token would be refused or the drain ends.
 */
import type { Socket } from 'node:net'
import type { SidecarRequest } from '../server/context.ts'
import type { Verdict } from '../token/caller.ts'
import { allows } from '../token/scopes.ts'
import type { UpstreamHead } from './response-parser.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

export interface TunnelOptions {
  /** Verifies the token of an open tunnel again. */
  readonly recheck: (authorization: string | undefined) => Verdict | Promise<Verdict>
  /** The checks of the tokens of open tunnels. */
  readonly tunnelChecks: Set<() => void>
  readonly now: () => number
}

/** The lines of a handshake and of its 101 that are hop-by-hop. */
export const UPGRADE_LINES = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'

/** For which a client may read nothing of the last bytes. */
const CLOSE_MS = 5000

/** Idle time before the first probe; libuv gives up after ten more, one second apart. */
const KEEP_ALIVE_MS = 60_000

/** The longest delay of a Node timer, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1

export function switchesToWebSocket({ rawHeaders, connectionOptions }: UpstreamHead): boolean {
  const isNamed = rawHeaders.some(
    (name, at) => name.toLowerCase() === 'upgrade' && rawHeaders[at + 1]?.toLowerCase() === 'websocket',
  )
  return isNamed && connectionOptions?.has('upgrade') === true
}

/** Sends the 101. Returns the client's socket, to which the upstream's bytes go. */
export function openTunnel(
  req: SidecarRequest,
  headers: readonly string[],
  connection: UpstreamConnection,
  options: TunnelOptions,
): Socket {
  const { context, socket: client } = req
  const upstream = connection.socket
  context.serveBy({ state: 'tunnel', onIdle() {}, onRelease: () => connection.abandon() })
  let head = `HTTP/1.1 101 Switching Protocols\r\n${UPGRADE_LINES}`
  for (let at = 0; at < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`
  client.write(`${head}\r\n`, 'latin1')
  client.setTimeout(0)
  context.connection.tcpSocket.setKeepAlive(true, KEEP_ALIVE_MS)
  upstream.setKeepAlive(true, KEEP_ALIVE_MS)
  upstream.on('close', () => {
    client.destroySoon()
    // A write to a TLS socket that its client has reset may never end.
    client.setTimeout(CLOSE_MS, () => client.destroy())
  })
  client.on('data', (chunk: Buffer) => {
    context.bytesIn += chunk.length
  })
  const { firstBytes = Buffer.alloc(0) } = context.upgrade ?? {}
  context.bytesIn += firstBytes.length
  upstream.write(firstBytes)
  client.pipe(upstream)
  closeWhenRefused(req, options)
  return client
}

/** Checks the token now, whenever auth data changes, and when the verdict ends: it may have been revoked meanwhile. */
function closeWhenRefused({ socket, context }: SidecarRequest, options: TunnelOptions): void {
  const { decision, admitted } = context
  if (decision?.act !== 'forward' || decision.caller === undefined || admitted === undefined) return
  if (decision.caller.link !== undefined) return // only report mode passes a handshake with a link
  const isReported = decision.wouldRefuse !== undefined
  const { recheck, tunnelChecks, now } = options
  let timer: NodeJS.Timeout | undefined
  const check = async () => {
    const verdict = await Promise.resolve(recheck(admitted.authorization)).catch(() => undefined)
    clearTimeout(timer)
    const caller = verdict?.ok === true ? verdict.caller : undefined
    const scope = isReported ? undefined : caller?.identity.scope
    const isAllowed = scope === undefined || allows(scope, admitted)
    if (caller === undefined || !isAllowed) socket.destroy()
    if (caller === undefined || socket.destroyed) return
    timer = setTimeout(check, Math.min(Math.max(caller.usableUntil - now(), 0), MAX_TIMER_MS))
  }
  tunnelChecks.add(check)
  socket.once('close', () => {
    tunnelChecks.delete(check)
    clearTimeout(timer)
  })
  void check()
}
