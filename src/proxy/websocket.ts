/**
 * WebSocket pass-through (RFC 6455). A handshake is forwarded like any request; http-proxy's own pass has no timeouts.
 * In: the upstream's 101. Out: bytes in both directions until a side closes, the token would be refused or the drain ends.
 */
import type { Socket } from 'node:net'
import type { Admitted } from '../gate/admission.ts'
import type { ForwardDecision } from '../gate/decide.ts'
import type { RequestHandler, SidecarResponse } from '../server/context.ts'
import type { Verdict } from '../token/caller.ts'
import { allows } from '../token/scopes.ts'
import type { UpstreamConnection } from './upstream-connection.ts'

export interface TunnelOptions {
  /** Verifies the token of an open tunnel again. */
  readonly recheck: (authorization: string | undefined) => Verdict | Promise<Verdict>
  /** Open tunnels with a token. */
  readonly tunnels: Set<Tunnel>
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

export class Tunnel implements RequestHandler {
  readonly state = 'tunnel'
  readonly #res: SidecarResponse
  readonly #client: Socket
  readonly #connection: UpstreamConnection
  readonly #admitted: Admitted
  readonly #decision: ForwardDecision
  readonly #options: TunnelOptions
  /** Until the verdict on the token ends. */
  #timer: NodeJS.Timeout | undefined

  constructor(
    res: SidecarResponse,
    connection: UpstreamConnection,
    admitted: Admitted,
    decision: ForwardDecision,
    options: TunnelOptions,
  ) {
    this.#res = res
    this.#client = res.req.socket
    this.#connection = connection
    this.#admitted = admitted
    this.#decision = decision
    this.#options = options
  }

  /** Sends the 101. The upstream's bytes then go to the client's socket. `headers`: names and values, alternating. */
  open(headers: readonly string[]): void {
    const client = this.#client
    const { context } = this.#res.req
    const upstream = this.#connection.socket
    context.serveBy(this)
    let head = `HTTP/1.1 101 Switching Protocols\r\n${UPGRADE_LINES}`
    for (let at = 0; at < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`
    this.#res.statusCode = 101 // for the access log
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
    this.#watchToken()
  }

  onIdle(): void {}

  onRelease(): void {
    this.#connection.abandon()
  }

  /** Public routes have no token, and only report mode forwards a handshake with a link. */
  #watchToken(): void {
    const { caller } = this.#decision
    if (caller === undefined || caller.link !== undefined) return
    const { tunnels } = this.#options
    tunnels.add(this)
    this.#client.once('close', () => {
      tunnels.delete(this)
      clearTimeout(this.#timer)
    })
    void this.recheck() // the token may have been revoked since the request arrived
  }

  /** Closes the tunnel if its token would be refused now; otherwise checks again when the new verdict ends. */
  async recheck(): Promise<void> {
    const { recheck, now } = this.#options
    const { authorization } = this.#admitted
    const verdict = await Promise.resolve(recheck(authorization)).catch(() => undefined)
    const caller = verdict?.ok === true ? verdict.caller : undefined
    // Report mode forwards what a scope does not allow.
    const scope = this.#decision.wouldRefuse === undefined ? caller?.identity.scope : undefined
    clearTimeout(this.#timer)
    if (caller === undefined || (scope && !allows(scope, this.#admitted))) {
      this.#client.destroy()
    } else if (!this.#client.destroyed) {
      const left = Math.max(caller.usableUntil - now(), 0)
      this.#timer = setTimeout(() => void this.recheck(), Math.min(left, MAX_TIMER_MS))
    }
  }
}
