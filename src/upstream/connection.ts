/**
 * One connection to an upstream, as the state machine in `contract.ts` describes it.
 * It serves one request at a time. Node's `http.request` and undici would take about twice the CPU time
 * (bench/README.md). Both would add `Connection`, and undici would rename and move `Host`.
 */
import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { codeOf, type ForwardingFailure, networkFailureOf } from '../base/errors.ts'
import { listenBeforeNode, probeForReset } from '../http/node-http.ts'
import type { UpstreamAddress } from './address.ts'
import { freeWhenWritten, type ReadBuffers, ReceivedBody } from './buffers.ts'
import { Connector } from './connector.ts'
import type {
  ConnectionPhase,
  ResponseReceiver,
  ServingConnection,
  UpstreamRequest,
  UpstreamSettings,
} from './contract.ts'
import { ResponseParser } from './response-parser.ts'
import { WAITS, WaitClock } from './waits.ts'

export interface ConnectionPool {
  readonly config: UpstreamSettings
  readonly readBuffers: ReadBuffers
  /** TCP is connected. */
  onConnected(socket: Socket): void
  onReusable(connection: UpstreamConnection): void
  onClosed(connection: UpstreamConnection): void
}

const MAX_IDLE_MS = 60_000
/**
 * The sidecar closes an idle connection earlier by this time,
 * because the upstream's keep-alive timer starts first.
 */
const MARGIN_MS = 1000

export class UpstreamConnection implements ServingConnection {
  readonly #body: ReceivedBody
  readonly #pool: ConnectionPool
  readonly #parser: ResponseParser
  readonly #waitClock = new WaitClock()
  readonly #connector: Connector
  /** Undefined until TCP is connected. */
  #socket: Socket | undefined
  #phase: ConnectionPhase
  /** Undefined in the phases `idle` and `closed`. */
  #receiver: ResponseReceiver | undefined
  #isRequestWritten = false
  #awaitsDrain = false // of the client
  #isPaced = false
  readonly #maxAgeEndsMonotonicMs: number
  #idleUntilMonotonicMs = 0

  constructor(address: UpstreamAddress, pool: ConnectionPool, request: UpstreamRequest) {
    const { limits, timeouts } = pool.config
    this.#pool = pool
    this.#body = new ReceivedBody(pool.readBuffers)
    this.#parser = new ResponseParser(limits, this.#body)
    this.#receiver = request
    this.#phase = address.name === undefined ? 'connecting' : 'lookup'
    this.#maxAgeEndsMonotonicMs = performance.now() + timeouts.upstreamMaxAgeSeconds * 1000
    const onread = this.#body.readInto((chunk) => this.#onRead(chunk))
    this.#connector = new Connector(address, onread, {
      onAddresses: () => this.#enter('connecting', request),
      onConnected: (socket) => this.#onConnected(socket, address.tls, request),
      onFailure: (error) => this.#onError(error),
    })
    this.#connector.start()
  }

  #onConnected(socket: Socket, tls: boolean, request: UpstreamRequest): void {
    this.#socket = socket
    socket.setNoDelay(true)
    socket.on('drain', () => this.#receiver?.onWritable?.())
    listenBeforeNode(socket, 'end', () => this.#onEnd())
    socket.on('error', (error) => this.#onError(error))
    socket.on('close', () => {
      this.#failAsClosed()
      this.#onClosed()
    })
    this.#pool.onConnected(socket)
    if (tls) {
      socket.on('data', (chunk: Buffer) => this.#onRead(chunk))
      socket.once('secureConnect', () => this.#onReady(socket, request))
    } else {
      this.#onReady(socket, request)
    }
  }

  #onReady(socket: Socket, request: UpstreamRequest): void {
    if (this.isServing(request)) {
      this.#write('established', socket, request)
    }
  }

  #onClosed(): void {
    this.#body.releaseBuffer()
    this.#pool.onClosed(this)
  }

  get phase(): ConnectionPhase {
    return this.#phase
  }

  isServing(request: UpstreamRequest): boolean {
    return this.#receiver === request
  }

  /** Sends the next request. The connection must be idle. */
  send(request: UpstreamRequest): void {
    if (this.#phase !== 'idle') {
      throw new Error('the connection is in use')
    }
    this.#write('reused', this.#connected, request)
  }

  writeBody(pieces: readonly (string | Buffer)[], isLast: boolean): boolean {
    const socket = this.#connected
    socket.cork()
    for (const piece of pieces) {
      if (typeof piece === 'string') {
        socket.write(piece, 'latin1')
      } else {
        socket.write(piece, freeWhenWritten(piece))
      }
    }
    socket.uncork()
    this.#isRequestWritten = isLast
    return !socket.writableNeedDrain
  }

  /**
   * False once the connection is closing, and after an early response, while a part of the request is unsent.
   */
  get isUsable(): boolean {
    const socket = this.#socket
    return socket?.writable === true && socket.writableLength === 0
  }

  pauseUntilDrain(client: Writable): void {
    if (this.#awaitsDrain) {
      return
    }
    this.#awaitsDrain = true
    this.#connected.pause()
    client.once('drain', () => {
      this.#awaitsDrain = false
      this.#resume()
    })
  }

  setPaced(isPaced: boolean): void {
    this.#isPaced = isPaced
    if (isPaced) {
      this.#connected.pause()
    } else {
      this.#resume()
    }
  }

  #resume(): void {
    if (!this.#awaitsDrain && !this.#isPaced) {
      this.#connected.resume()
    }
  }

  handOver(tunnel: ResponseReceiver): Socket {
    this.#enter('tunnel', tunnel)
    return this.#connected
  }

  close(): void {
    if (this.#phase === 'closed') {
      return
    }
    this.#enter('closed', undefined)
    this.#connector.close()
    if (this.#socket === undefined) {
      process.nextTick(() => this.#onClosed()) // as late as the `close` of a socket
    } else {
      this.#socket.destroy()
    }
  }

  /** Called several times a second. */
  tick(monotonicNow: number): void {
    this.#receiver?.onTick?.()
    if (this.#phase === 'idle' && monotonicNow >= this.#idleUntilMonotonicMs) {
      this.close()
    }
    const wait = this.#wait
    // Informational responses and parts of a head do not count.
    const bytesRead = this.#parser.head === undefined ? 0 : (this.#socket?.bytesRead ?? 0)
    const waitedMs = this.#waitClock.measure(wait !== undefined, this.#socket, bytesRead, monotonicNow)
    if (wait !== undefined && waitedMs >= this.#pool.config.timeouts[wait.limit] * 1000) {
      this.#fail(wait.failure)
    }
  }

  get #connected(): Socket {
    if (this.#socket === undefined) {
      throw new Error('the connection is not connected')
    }
    return this.#socket
  }

  get #isConnecting(): boolean {
    return this.#phase === 'lookup' || this.#phase === 'connecting'
  }

  #enter(phase: ConnectionPhase, receiver: ResponseReceiver | undefined): void {
    this.#phase = phase
    this.#receiver = receiver
  }

  /**
   * Undefined while it waits for the client or a request.
   * The order decides: a paused or full socket hides other waits.
   */
  get #wait() {
    if (this.#phase === 'tunnel' || this.#receiver === undefined) {
      return undefined
    }
    if (this.#phase === 'lookup') {
      return WAITS.address
    }
    if (this.#phase === 'connecting') {
      return WAITS.connection
    }
    const socket = this.#connected
    if (socket.isPaused()) {
      return undefined
    }
    if (socket.writableNeedDrain) {
      return WAITS.upstreamToRead
    }
    if (!this.#isRequestWritten) {
      return undefined
    }
    return this.#parser.head === undefined ? WAITS.responseHead : WAITS.responseBody
  }

  #write(phase: 'established' | 'reused', socket: Socket, request: UpstreamRequest): void {
    this.#enter(phase, request)
    this.#isRequestWritten = !request.hasBody
    this.#parser.start(request.isHeadRequest, request.isWebSocket)
    try {
      if (request.hasBody) {
        this.#writeWithBody(socket, request)
      } else {
        socket.write(request.takeHead(this), 'latin1')
      }
    } catch (error) {
      this.close()
      request.onInternalError(error)
    }
  }

  /** The head and the part of the body that has arrived take one write. */
  #writeWithBody(socket: Socket, request: UpstreamRequest): void {
    socket.cork()
    try {
      socket.write(request.takeHead(this), 'latin1')
      request.onReadyForBody(this)
    } finally {
      socket.uncork()
    }
  }

  /**
   * Node (libuv before 1.52) reports a reset that arrives with the last bytes as an end,
   * which would complete a close-delimited body. An empty write then fails.
   * After a clean end, it may fail with EPIPE. Behind other bytes, it would wait for the upstream.
   */
  #onEnd(): void {
    const socket = this.#connected
    const mayBeReset = this.#parser.head?.framing === 'close' && socket.writableLength === 0
    if (!mayBeReset) {
      this.#onRead(undefined)
    } else {
      probeForReset(socket, (error) => {
        if (!error || codeOf(error) === 'EPIPE') {
          this.#onRead(undefined)
        }
      })
    }
  }

  /**
   * `chunk`: undefined at the end of the connection.
   * Bytes that belong to no request close an idle connection.
   */
  #onRead(chunk: Buffer | undefined): void {
    const receiver = this.#receiver
    if (receiver === undefined) {
      this.close()
    } else if (this.#isConnecting) {
      this.#failAsClosed()
    } else {
      this.#deliver(chunk, receiver)
    }
  }

  #deliver(chunk: Buffer | undefined, receiver: ResponseReceiver): void {
    const parser = this.#parser
    let isClean = false
    try {
      if (chunk === undefined) {
        parser.close()
      } else {
        isClean = parser.push(chunk)
      }
      if (chunk !== undefined && this.#phase !== 'tunnel') {
        this.#enter('receiving', receiver)
      }
      receiver.onRead(parser, this)
      const isOpen = this.#receiver !== undefined
      if (isOpen && this.#body.length > 0) {
        throw new Error('a part of the body was not taken')
      }
    } catch (error) {
      this.close()
      receiver.onInternalError(error)
    }
    if (this.#phase === 'closed') {
      return
    }
    if (parser.syntaxError !== undefined) {
      this.#fail('http_protocol_error', parser.syntaxError)
    } else if (parser.isDone) {
      this.#reuseOrClose(isClean)
    } else if (chunk === undefined) {
      this.#failAsClosed()
    }
  }

  /**
   * `isClean`: no byte follows the response.
   * A byte that follows could be taken for the next response (CVE-2026-48931).
   */
  #reuseOrClose(isClean: boolean): void {
    const { keepAliveSeconds = 0 } = this.#parser.head ?? {}
    const idleMs = Math.min(keepAliveSeconds * 1000 - MARGIN_MS, MAX_IDLE_MS)
    const now = performance.now()
    const idleUntilMonotonicMs = Math.min(now + idleMs, this.#maxAgeEndsMonotonicMs)
    // The pool asks later whether the request is sent: TLS sockets report it late.
    if (isClean && this.#isRequestWritten && idleUntilMonotonicMs > now) {
      this.#enter('idle', undefined)
      this.#idleUntilMonotonicMs = idleUntilMonotonicMs
      this.#pool.onReusable(this)
    } else {
      this.close()
    }
  }

  #onError(error: Error): void {
    const failure = networkFailureOf(error) ?? 'proxy_internal_error'
    const cause = codeOf(error)
    if (this.#isConnecting || failure.startsWith('tls_')) {
      this.#fail(failure, cause)
    } else {
      this.#failAsClosed(cause)
    }
  }

  /** The upstream has closed the connection. */
  #failAsClosed(cause?: string): void {
    this.#fail(this.#phase === 'receiving' ? 'http_response_incomplete' : 'connection_terminated', cause)
  }

  #fail(failure: ForwardingFailure, cause?: string): void {
    const receiver = this.#receiver
    const isStale = this.#phase === 'reused' && failure === 'connection_terminated'
    this.close()
    receiver?.onFailure?.(failure, cause, isStale)
  }
}
