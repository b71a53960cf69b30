/**
 * A WebSocket tunnel (RFC 6455). A transfer forwards the handshake like any request: the pass of http-proxy has no timeouts.
 * In: the upstream's 101. Out: bytes in both directions until a side closes, the token is refused or the process stops.
 */
import type { Socket } from 'node:net'
import type { RequestContext, RequestOwner } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Gate, ServiceDecision } from '../gate/gate.ts'
import { headerText } from '../http/headers.ts'
import { responseHeaders } from './download.ts'
import { UPGRADE_LINES } from './request-headers.ts'
import type { PartialResponse, UpstreamHead } from './response-parser.ts'
import type { ResponseReceiver, UpstreamConnection } from './upstream-connection.ts'

/** How long a client may take to read the last bytes. */
const CLOSE_MS = 5000

/** Idle time before the first TCP keep-alive probe. libuv sets ten probes, one second apart, before the connection fails. */
const KEEP_ALIVE_MS = 60_000

/** Shared by all upstreams. `open`: the tunnels that end when their token is refused. */
export interface Tunnels {
  readonly open: Set<Tunnel>
  /** False in report mode, in which no request is refused for its token. */
  readonly endWithToken: boolean
  readonly gate: Pick<Gate, 'callerStillAllowed'>
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly reportInternalError: (requestId: string, error: unknown) => void
}

export class Tunnel implements RequestOwner, ResponseReceiver {
  readonly #res: SidecarResponse
  readonly #decision: ServiceDecision
  readonly #context: RequestContext
  readonly #socket: Socket
  readonly #upstreamConnection: UpstreamConnection
  readonly #tunnels: Tunnels
  /** Checks the token again when the current verdict expires. */
  #timer: NodeJS.Timeout | undefined

  constructor(
    res: SidecarResponse,
    decision: ServiceDecision,
    upstreamConnection: UpstreamConnection,
    tunnels: Tunnels,
  ) {
    const { context, socket } = res.req
    this.#res = res
    this.#decision = decision
    this.#context = context
    this.#socket = socket
    this.#upstreamConnection = upstreamConnection
    this.#tunnels = tunnels
  }

  /** Takes over both connections from the transfer, and sends the 101. `response` may hold bytes that came with the 101. */
  start(head: UpstreamHead, response: PartialResponse): void {
    const context = this.#context
    const client = this.#socket
    context.changeOwner(this)
    const upstream = this.#upstreamConnection.handOver(this)
    const lines = headerText(responseHeaders(head, context.id))
    client.write(`HTTP/1.1 101 Switching Protocols\r\n${UPGRADE_LINES}${lines}\r\n`, 'latin1')
    this.#res.becomeTunnel()
    client.setTimeout(0)
    context.client.tcpSocket.setKeepAlive(true, KEEP_ALIVE_MS)
    upstream.setKeepAlive(true, KEEP_ALIVE_MS)
    upstream.on('close', () => {
      client.destroySoon()
      // A write to a TLS socket may never end if the client has reset the connection.
      client.setTimeout(CLOSE_MS, () => client.destroy())
    })
    client.on('data', (chunk: Buffer) => context.countIn(chunk.length))
    const { firstBytes = Buffer.alloc(0) } = context
    context.countIn(firstBytes.length)
    upstream.write(firstBytes)
    client.pipe(upstream)
    this.onRead(response)
    const { open, endWithToken } = this.#tunnels
    if (!endWithToken || this.#decision.caller === undefined) return
    open.add(this)
    client.once('close', () => {
      open.delete(this)
      clearTimeout(this.#timer)
    })
    void this.recheck() // the token may have been revoked since the request arrived
  }

  onRead({ body, isDone }: PartialResponse): void {
    this.#context.countOut(body.length)
    const isWritable = body.writeTo(this.#socket)
    if (isDone) this.#socket.end()
    else if (!isWritable) this.#upstreamConnection.pauseUntilDrain(this.#socket)
  }

  onWriteBlocked(): void {
    this.#context.client.detectReset()
  }

  onInternalError(error: unknown): void {
    this.#tunnels.reportInternalError(this.#context.id, error)
    this.#context.client.abort()
  }

  onClosed(): void {
    this.#upstreamConnection.close()
  }

  /** Closes the tunnel if its token would now be refused. Otherwise checks again when the new verdict expires. */
  async recheck(): Promise<void> {
    const { gate, now, reportInternalError } = this.#tunnels
    const onError = (error: unknown) => void reportInternalError(this.#context.id, error)
    const caller = await gate.callerStillAllowed(this.#decision.admitted).catch(onError)
    clearTimeout(this.#timer)
    if (caller === undefined) this.#socket.destroy()
    else if (!this.#socket.destroyed) {
      // The delay is at most `cache.maxAgeSeconds`, which has the same maximum as a Node timer.
      this.#timer = setTimeout(() => void this.recheck(), caller.recheckAtMs - now())
    }
  }
}
