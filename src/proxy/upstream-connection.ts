/**
 * One connection to an upstream: one request at a time, and its response. Reused only when both are complete and no
 * unsolicited byte has arrived: an upstream must not choose the next client's response (response desync, CVE-2026-48931).
 * A client of our own, because `http.request` costs 130 % more per request, undici 80 %, and both reorder header lines.
 */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'
import type { Config } from '../config/config.ts'
import { networkFailureOf, type UpstreamFailure } from '../failures.ts'
import { lookup } from '../http/hosts.ts'
import { ReadBuffer } from './buffers.ts'
import { type RequestKind, ResponseParser, ResponseSyntaxError } from './response-parser.ts'

/** Opens sockets to an upstream. TCP and unix sockets read by `onread`; TLS sockets emit `data`. */
export interface UpstreamAddress {
  readonly tls: boolean
  readonly open: (onread: OnReadOpts) => Socket
  /** Whether the host is a name, which is looked up for each connection. */
  readonly isNamed: boolean
  readonly host: string
}

/** Reads `http://…`, `https://…` or `unix:/path`. `secureContext`: for each connection; default: the system's CAs. */
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
  if (!tls) return { tls, open: (onread) => connectTcp({ ...options, onread }), isNamed, host }
  const systemCas = createSecureContext()
  // The certificate must name the upstream's host, not a client's `Host`.
  const tlsOptions = { ...options, servername: isNamed ? name : '', ALPNProtocols: ['http/1.1'] }
  const open = () => connectTls({ ...tlsOptions, secureContext: secureContext?.() ?? systemCas })
  return { tls, open, isNamed, host }
}

export interface UpstreamRequest extends RequestKind {
  readonly headText: string
  /** `writable`: the upstream accepts more bytes now; otherwise `onWritable` follows. */
  onHeadWritten(connection: UpstreamConnection, writable: boolean): void
  onWritable(): void
  /** Called after each read, also before the failure that the read may cause. */
  onRead(response: ResponseParser, connection: UpstreamConnection): void
  /** The connection's last call. `isStale`: it was reused and no byte came; most likely the upstream had closed it. */
  onFailure(failure: UpstreamFailure, isStale: boolean): void
}

export interface ConnectionPool {
  onReusable(connection: UpstreamConnection): void
  onClosed(connection: UpstreamConnection): void
}

const MAX_IDLE_MS = 60_000
/** The upstream's keep-alive timer started before ours: connections are closed sooner. */
const MARGIN_MS = 1000

export class UpstreamConnection {
  readonly socket: Socket
  readonly readBuffer = new ReadBuffer()
  readonly #pool: ConnectionPool
  readonly #timeouts: Config['timeouts']
  readonly #parser: ResponseParser
  #request: UpstreamRequest | undefined
  /** The failure when the deadline passes: `http_response_timeout` once the connection is established. */
  #timeoutFailure: 'dns_error' | 'connection_timeout' | 'http_response_timeout'
  /** Monotonic milliseconds of the connect, response or idle timeout; `Infinity` while bodies are transferred. */
  #deadline: number
  #isReused = false
  #hasResponseBytes = false

  constructor(address: UpstreamAddress, pool: ConnectionPool, request: UpstreamRequest, config: Config) {
    this.#pool = pool
    this.#timeouts = config.timeouts
    this.#request = request
    this.#parser = new ResponseParser(config.limits)
    this.#timeoutFailure = address.isNamed ? 'dns_error' : 'connection_timeout'
    this.#deadline = performance.now() + config.timeouts.upstreamConnectSeconds * 1000
    this.socket = address.open(this.readBuffer.readInto((chunk) => this.#onRead(chunk)))
    this.socket.setNoDelay(true)
    this.socket.once('lookup', () => {
      this.#timeoutFailure = 'connection_timeout'
    })
    this.socket.once(address.tls ? 'secureConnect' : 'connect', () => this.send(request))
    if (address.tls) this.socket.on('data', (chunk: Buffer) => this.#onRead(chunk))
    this.socket.on('drain', () => this.#request?.onWritable())
    this.socket.on('end', () => this.#onRead(undefined))
    this.socket.on('error', (error) => this.#onError(error))
    this.socket.on('close', () => {
      this.#fail('connection_terminated')
      this.readBuffer.giveBack()
      pool.onClosed(this)
    })
  }

  isServing(request: UpstreamRequest): boolean {
    return this.#request === request
  }

  send(request: UpstreamRequest): void {
    if (this.#request !== undefined && this.#request !== request) throw new Error('the connection is in use')
    this.#request = request
    this.#timeoutFailure = 'http_response_timeout'
    this.#deadline = Number.POSITIVE_INFINITY
    this.#parser.start(request)
    this.#hasResponseBytes = false
    if (this.socket.destroyed) this.#fail('connection_terminated')
    else request.onHeadWritten(this, this.socket.write(request.headText, 'latin1'))
  }

  /** Closes the connection without a report to its request. */
  abandon(): void {
    this.#request = undefined
    this.socket.destroy()
  }

  /** The complete request has been written. */
  awaitHead(): void {
    if (this.#parser.head === undefined)
      this.#deadline = performance.now() + this.#timeouts.upstreamResponseSeconds * 1000
  }

  checkDeadline(now: number): void {
    if (this.#deadline <= now) this.#fail(this.#timeoutFailure)
  }

  /** `chunk`: undefined at the end of the connection. */
  #onRead(chunk: Buffer | undefined): void {
    const request = this.#request
    const parser = this.#parser
    if (request === undefined || parser.isDone) {
      this.#fail('connection_terminated')
      return
    }
    let isClean = false
    let isMalformed = false
    try {
      if (chunk === undefined) parser.close()
      else {
        this.#hasResponseBytes = true
        isClean = parser.push(chunk)
      }
    } catch (error) {
      if (!(error instanceof ResponseSyntaxError)) throw error
      isMalformed = true
    }
    if (parser.head !== undefined) this.#deadline = Number.POSITIVE_INFINITY
    request.onRead(parser, this)
    if (this.#request !== request) return // it has abandoned the connection
    if (isMalformed) this.#fail('http_protocol_error')
    else if (parser.isDone) this.#release(isClean)
    else if (chunk === undefined) this.#fail('connection_terminated')
  }

  #release(isClean: boolean): void {
    const { keepAliveSeconds = 0 } = this.#parser.head ?? {}
    const idleMs = Math.min(keepAliveSeconds * 1000 - MARGIN_MS, MAX_IDLE_MS)
    this.#request = undefined
    this.#isReused = true
    this.#deadline = performance.now() + idleMs
    // After an early response the next request would be queued after unsent bytes of this one.
    if (isClean && idleMs > 0 && this.socket.writableLength === 0) this.#pool.onReusable(this)
    else this.socket.destroy()
  }

  #onError(error: Error): void {
    const failure = networkFailureOf(error) ?? 'proxy_internal_error'
    // With TLS 1.3 a server refuses a client certificate after the request has been written.
    const isConnecting = this.#timeoutFailure !== 'http_response_timeout' || failure.startsWith('tls_')
    this.#fail(isConnecting ? failure : 'connection_terminated')
  }

  #fail(failure: UpstreamFailure): void {
    const request = this.#request
    this.#request = undefined
    this.socket.destroy()
    if (request === undefined) return
    const isClosed = failure === 'connection_terminated'
    const isTruncated = isClosed && this.#hasResponseBytes
    const isStale = isClosed && this.#isReused && !this.#hasResponseBytes
    request.onFailure(isTruncated ? 'http_response_incomplete' : failure, isStale)
  }
}
