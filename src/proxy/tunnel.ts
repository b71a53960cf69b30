/**
 * A WebSocket tunnel (RFC 6455). A transfer forwards the handshake like any request, and starts the tunnel at
 * the 101. In: the upstream's 101.
 * Out: bytes in both directions until a side closes, the token is refused or the process stops.
 */
import type { Socket } from 'node:net'
import type { ReportError } from '../base/log.ts'
import type { RequestOwner } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import { headerText } from '../http/headers.ts'
import type { PacedReader } from '../room.ts'
import type { ResponseReceiver, ServingConnection } from '../upstream/contract.ts'
import type { PartialResponse, UpstreamHead } from '../upstream/response-parser.ts'
import { responseHeaders } from './download.ts'
import type { Recheck } from './recheck.ts'
import { UPGRADE_LINES } from './request-headers.ts'

/** How long a client may read nothing of the last bytes. */
const CLOSE_MS = 5000

/**
 * Idle time before the first TCP keep-alive probe.
 * libuv sets ten probes, one second apart, before the connection fails.
 */
const KEEP_ALIVE_MS = 60_000

export class Tunnel implements RequestOwner, ResponseReceiver {
  readonly #res: SidecarResponse
  readonly #upstreamConnection: ServingConnection
  readonly #recheck: Recheck
  readonly #reportError: ReportError
  #upstreamSocket: Socket | undefined

  constructor(res: SidecarResponse, connection: ServingConnection, recheck: Recheck, report: ReportError) {
    this.#res = res
    this.#upstreamConnection = connection
    this.#recheck = recheck
    this.#reportError = report
  }

  /**
   * Takes over both connections from the transfer, and sends the 101.
   * `response` may hold bytes that came with the 101.
   */
  start(head: UpstreamHead, response: PartialResponse): void {
    const { context, socket } = this.#res.req
    context.changeOwner(this)
    const upstreamSocket = this.#upstreamConnection.handOver(this)
    this.#res.switchProtocols(`${UPGRADE_LINES}${headerText(responseHeaders(head, context.id))}`)
    socket.setTimeout(0)
    context.connection.tcpSocket.setKeepAlive(true, KEEP_ALIVE_MS)
    upstreamSocket.setKeepAlive(true, KEEP_ALIVE_MS)
    upstreamSocket.on('close', () => {
      socket.destroySoon()
      // A write to a TLS socket may never end if the client has reset the connection.
      socket.setTimeout(CLOSE_MS, () => socket.destroy())
    })
    const firstBytes = context.detached?.firstBytes ?? Buffer.alloc(0)
    context.count('in', firstBytes.length)
    upstreamSocket.write(firstBytes)
    this.#readFromClient(upstreamSocket)
    this.onRead(response)
  }

  #readFromClient(upstreamSocket: Socket): void {
    const { context, socket } = this.#res.req
    socket.on('data', (chunk: Buffer) => {
      context.count('in', chunk.length)
      upstreamSocket.write(chunk)
      this.#fromClient.readOn()
    })
    socket.on('end', () => upstreamSocket.end())
    upstreamSocket.on('drain', () => this.#fromClient.readOn())
    this.#upstreamSocket = upstreamSocket
    this.#fromClient.readOn()
  }

  /** Reads from the client while the upstream takes the bytes, and the watchers let it. */
  readonly #fromClient: PacedReader = {
    readOn: () => {
      const { context, socket } = this.#res.req
      const isFull = this.#upstreamSocket?.writableNeedDrain === true
      if (isFull || !context.mayRead('in', this.#fromClient)) {
        socket.pause()
      } else {
        socket.resume()
      }
    },
  }

  /** Reads from the upstream while the watchers let it. */
  readonly #fromUpstream: PacedReader = {
    readOn: () => {
      const mayRead = this.#res.req.context.mayRead('out', this.#fromUpstream)
      this.#upstreamConnection.setPaced(!mayRead)
    },
  }

  onRead({ body, isDone }: PartialResponse): void {
    const { context, socket } = this.#res.req
    context.count('out', body.length)
    const isWritable = body.writeTo(socket)
    if (isDone) {
      socket.end()
      return
    }
    if (!isWritable) {
      this.#upstreamConnection.pauseUntilDrain(socket)
    }
    this.#fromUpstream.readOn()
  }

  onInternalError(error: unknown): void {
    const { context } = this.#res.req
    this.#reportError(context.id, error)
    context.recordFailure('internal')
    context.connection.abort()
  }

  onClosed(): void {
    const { context } = this.#res.req
    context.onReadEnd(this.#fromClient)
    context.onReadEnd(this.#fromUpstream)
    this.#upstreamConnection.close()
  }

  /** Closes the tunnel if the gate would now refuse it. */
  onTick(): void {
    const { context, socket } = this.#res.req
    context.connection.detectReset()
    this.#recheck.ifDue((decision) => {
      if (decision?.act === 'forward') {
        return
      }
      context.recordFailure(decision?.act === 'refuse' ? decision.reason : 'internal')
      socket.destroy()
    })
  }
}
