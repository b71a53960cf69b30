/**
 * One connection to an upstream: one request at a time, and its response. It is reused only when both are complete and
 * no unsolicited byte arrived: an upstream must not choose the next client's response (response desync, CVE-2026-48931).
 */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'
import {
  type ResponseLimits,
  ResponseParser,
  type ResponseSink,
  type UpstreamHead,
} from './response-parser.ts'
import { faultOf, type UpstreamFault } from './upstream-errors.ts'

/** Opens sockets to an upstream. TCP and unix sockets read by `onread`; TLS sockets emit `data`. */
export interface UpstreamAddress {
  readonly tls: boolean
  readonly open: (onread?: OnReadOpts) => Socket
  readonly host: string
}

/** Reads `http://…`, `https://…` or `unix:/path`. `secureContext`: for each connection; default: the system's CAs. */
export function upstreamAddress(upstreamUrl: string, secureContext?: () => SecureContext): UpstreamAddress {
  if (upstreamUrl.startsWith('unix:')) {
    const path = upstreamUrl.slice('unix:'.length)
    return {
      tls: false,
      host: 'localhost',
      open: (onread) => connectTcp({ path, ...(onread && { onread }) }),
    }
  }
  const url = new URL(upstreamUrl)
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const tls = url.protocol === 'https:'
  const address = { host: hostname, port: Number(url.port || (tls ? 443 : 80)) }
  if (!tls) {
    return { tls, host: url.host, open: (onread) => connectTcp({ ...address, ...(onread && { onread }) }) }
  }
  const systemCas = createSecureContext()
  // The certificate must name the upstream's host, not a client's `Host`.
  const servername = isIP(hostname) === 0 ? hostname : ''
  const options = { ...address, servername, ALPNProtocols: ['http/1.1'] }
  return {
    tls,
    host: url.host,
    open: () => connectTls({ ...options, secureContext: secureContext?.() ?? systemCas }),
  }
}

export interface UpstreamRequest {
  readonly requestHead: string
  /** The calls of one read are in this order: `onHead`, `onBody`, `onEnd`, `onRead`. */
  readonly response: ResponseSink & { onRead(connection: UpstreamConnection): void }
  readonly isHeadRequest: boolean
  /** For a tunnel: it never waits for a connection. */
  readonly isHandshake: boolean
  /** `writable`: the upstream accepts more bytes now; otherwise `onDrain` follows. */
  onHeadWritten(connection: UpstreamConnection, writable: boolean): void
  onDrain(): void
  /** The last call. `stale`: a reused connection, no byte of a response: most likely the upstream had closed it. */
  onFault(fault: UpstreamFault, stale: boolean): void
}

export interface ConnectionOwner {
  takeBuffer(): Buffer
  returnBuffer(buffer: Buffer): void
  /** A response is complete; the connection can carry another request from the next turn on. */
  onReusable(connection: UpstreamConnection): void
  onClosed(connection: UpstreamConnection): void
}

/** Milliseconds for which an idle connection is kept when the upstream announces no `Keep-Alive: timeout`. */
const IDLE_MS = 4000
const MAX_IDLE_MS = 60_000
/** The upstream's keep-alive timer started before ours: connections are closed sooner. */
const MARGIN_MS = 1000

const EMPTY = Buffer.alloc(0)

export class UpstreamConnection {
  readonly socket: Socket
  /** Monotonic milliseconds of the connect, response or idle timeout; `Infinity` while bodies are transferred. */
  deadline: number
  readonly #owner: ConnectionOwner
  readonly #parser: ResponseParser
  #request: UpstreamRequest | undefined
  #isConnected = false
  #isReused = false
  #hasResponseBytes = false
  /** Filled by the next read; undefined under TLS, where Node allocates. */
  #buffer: Buffer | undefined

  /** `connectMs`: TLS included. */
  constructor(
    address: UpstreamAddress,
    owner: ConnectionOwner,
    request: UpstreamRequest,
    connectMs: number,
    limits: ResponseLimits,
  ) {
    this.#owner = owner
    this.#request = request
    this.#parser = new ResponseParser(limits)
    this.deadline = performance.now() + connectMs
    this.#buffer = address.tls ? undefined : owner.takeBuffer()
    this.socket = address.open({
      // Reused: Node's streams allocate 64 KiB per read, which starts garbage collections. Node 20: 1,000 -> 450 ms/GB.
      buffer: () => this.#buffer ?? EMPTY,
      callback: (bytes, buffer) => {
        this.#onData(Buffer.from(buffer.buffer, buffer.byteOffset, bytes))
        return true
      },
    })
    this.socket.setNoDelay(true)
    this.socket.once(address.tls ? 'secureConnect' : 'connect', () => this.send(request))
    if (address.tls) this.socket.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.socket.on('drain', () => this.#request?.onDrain())
    this.socket.on('end', () => this.#onEnd())
    this.socket.on('error', (error) => this.#onError(error))
    this.socket.on('close', () => {
      this.#fail('connection_terminated')
      if (this.#buffer !== undefined) owner.returnBuffer(this.#buffer)
      owner.onClosed(this)
    })
  }

  isServing(request: UpstreamRequest): boolean {
    return this.#request === request
  }

  send(request: UpstreamRequest): void {
    if (this.#request !== undefined && this.#request !== request) throw new Error('the connection is in use')
    if (this.socket.destroyed) return
    this.#request = request
    this.#isConnected = true
    this.deadline = Number.POSITIVE_INFINITY
    this.#parser.start(request.response, request.isHeadRequest)
    this.#hasResponseBytes = false
    request.onHeadWritten(this, this.socket.write(request.requestHead, 'latin1'))
  }

  /** Keeps the buffer of the current read from being reused, until the returned function is called. */
  holdBuffer(): () => void {
    const held = this.#buffer
    if (held === undefined) return () => {} // allocated by Node
    this.#buffer = this.#owner.takeBuffer()
    return () => this.#owner.returnBuffer(held)
  }

  /** Closes the connection without a report to its request. */
  abandon(): void {
    this.#request = undefined
    this.socket.destroy()
  }

  expire(): void {
    this.#fail(this.#isConnected ? 'http_response_timeout' : 'connection_timeout')
  }

  #onData(chunk: Buffer): void {
    const request = this.#request
    if (request === undefined || this.#parser.done) {
      this.#fail('connection_terminated')
      return
    }
    this.#hasResponseBytes = true
    let isFullyConsumed: boolean
    try {
      isFullyConsumed = this.#parser.push(chunk)
      if (this.#request !== request) return // the request abandoned the connection
      request.response.onRead(this)
    } catch (error) {
      this.#fail(faultOf(error))
      return
    }
    if (this.#parser.done) this.#release(isFullyConsumed)
  }

  #release(isClean: boolean): void {
    const { head } = this.#parser
    if (this.#request === undefined) return
    this.#request = undefined
    this.#isReused = true
    const idleMs = head === undefined ? 0 : idleTimeoutOf(head)
    // After an early response the next request would be queued after unsent bytes of this one.
    if (!isClean || idleMs <= 0 || this.socket.writableLength > 0) {
      this.socket.destroy()
      return
    }
    this.deadline = performance.now() + idleMs
    if (this.socket.isPaused()) this.socket.resume() // otherwise a close is not noticed
    this.#owner.onReusable(this)
  }

  #onEnd(): void {
    const request = this.#request
    try {
      if (request !== undefined && this.#parser.close()) {
        request.response.onRead(this)
        this.#release(false)
      } else {
        this.#fail('connection_terminated')
      }
    } catch (error) {
      this.#fail(faultOf(error))
    }
  }

  #onError(error: Error): void {
    const fault = faultOf(error)
    // With TLS 1.3 a server refuses a client certificate after the request has been written.
    const isConnecting = !this.#isConnected || fault.startsWith('tls_')
    this.#fail(isConnecting ? fault : 'connection_terminated')
  }

  #fail(fault: UpstreamFault): void {
    const request = this.#request
    this.#request = undefined
    this.socket.destroy()
    if (request === undefined) return
    const isClosed = fault === 'connection_terminated'
    const isTruncated = isClosed && this.#hasResponseBytes
    const isStale = isClosed && this.#isReused && !this.#hasResponseBytes
    request.onFault(isTruncated ? 'http_response_incomplete' : fault, isStale)
  }
}

/** Milliseconds until an idle connection is closed; 0 when it cannot be reused. */
function idleTimeoutOf({ keepAlive, keepAliveSeconds }: UpstreamHead): number {
  if (!keepAlive) return 0
  return keepAliveSeconds === undefined ? IDLE_MS : Math.min(keepAliveSeconds * 1000 - MARGIN_MS, MAX_IDLE_MS)
}
