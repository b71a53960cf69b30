/**
 * One connection to an upstream. It carries one request at a time and reads the one response that belongs to it. It is
 * reused only when both are whole and no unasked byte arrived; a response that arrives sooner than its request can have
 * been read is unasked, too: an upstream must not choose what the next client receives (CVE-2026-48931).
 */
import { connect as connectTcp, isIP, type OnReadOpts, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls'
import { ResponseParser, type ResponseSink, type UpstreamHead } from './response-parser.ts'
import { faultOf, type UpstreamFault } from './upstream-errors.ts'

/** Opens a socket to an upstream. Only TCP and unix sockets read by `onread`; TLS emits `data`. */
export interface UpstreamAddress {
  readonly tls: boolean
  readonly open: (onread?: OnReadOpts) => Socket
  /** `Host` for a request that has none. */
  readonly host: string
}

/**
 * Reads an upstream's URL: `http://…`, `https://…` or `unix:/path`.
 *
 * @param secureContext - returns what a new TLS connection uses; default: the public authorities, no client certificate
 */
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
  const publicAuthorities = createSecureContext()
  // The name that the certificate must carry is the upstream's; a client's `Host` does not choose it.
  const servername = isIP(hostname) === 0 ? hostname : ''
  const options = { ...address, servername, ALPNProtocols: ['http/1.1'] }
  return {
    tls,
    host: url.host,
    open: () => connectTls({ ...options, secureContext: secureContext?.() ?? publicAuthorities }),
  }
}

/** A request that uses a connection, and receives its response. */
export interface UpstreamRequest extends ResponseSink {
  /** The head of the request, each character one byte. */
  readonly requestHead: string
  /** The request is HEAD: its response has no body. */
  readonly isHead: boolean
  /** The head has been written. `writable`: the upstream accepts more bytes now; otherwise `onDrain` follows. */
  onConnected(connection: UpstreamConnection, writable: boolean): void
  /** Everything that one read brought has been passed on. */
  onRead(): void
  /** The upstream accepts bytes again. */
  onDrain(): void
  /**
   * The connection cannot carry the request, or the rest of its response. The last call.
   * `stale`: it had been used before and no byte of a response arrived: most likely the upstream had closed it.
   */
  onFault(fault: UpstreamFault, stale: boolean): void
}

/** The pool of a connection. */
export interface ConnectionOwner {
  /** Grows with each turn of the event loop in which a request was written. */
  readonly turn: number
  /** Memory for reads. */
  takeBuffer(): Buffer
  returnBuffer(buffer: Buffer): void
  onWritten(): void
  /** A response is whole, and the connection can carry another request from the next turn on. */
  onReusable(connection: UpstreamConnection): void
  onClosed(connection: UpstreamConnection): void
}

/** Milliseconds for which an unused connection is kept when the upstream does not announce a time. */
const UNUSED_MS = 4000
const MAX_UNUSED_MS = 60_000
/** The upstream's clock started before ours: its connections are given up sooner than it does. */
const MARGIN_MS = 1000

const EMPTY = Buffer.alloc(0)

/** A connection that is connecting, in use, or unused. */
export class UpstreamConnection {
  readonly socket: Socket
  /** Monotonic milliseconds: until when it must connect, answer, or be used; `Infinity` while bodies move. */
  deadline: number
  readonly #owner: ConnectionOwner
  readonly #parser: ResponseParser
  #user: UpstreamRequest | undefined
  #isReused = false
  /** A byte of the response has arrived. */
  #isAnswered = false
  #writtenInTurn = -1
  /** What the next read fills; undefined under TLS, where Node allocates. */
  #buffer: Buffer | undefined

  /** Begins to connect, for a first request. `connectMs`: TLS included. */
  constructor(
    address: UpstreamAddress,
    owner: ConnectionOwner,
    user: UpstreamRequest,
    limits: { readonly connectMs: number; readonly headerBytes: number; readonly headerLines: number },
  ) {
    this.#owner = owner
    this.#user = user
    this.#parser = new ResponseParser(limits)
    this.deadline = performance.now() + limits.connectMs
    this.#buffer = address.tls ? undefined : owner.takeBuffer()
    this.socket = address.open({
      // The same memory for each read, where Node's streams allocate 64 KiB for every one.
      buffer: () => this.#buffer ?? EMPTY,
      callback: (bytes, buffer) => {
        this.#onData(Buffer.from(buffer.buffer, buffer.byteOffset, bytes))
        return true
      },
    })
    this.socket.setNoDelay(true)
    this.socket.once(address.tls ? 'secureConnect' : 'connect', () => this.use(user))
    if (address.tls) this.socket.on('data', (chunk: Buffer) => this.#onData(chunk))
    this.socket.on('drain', () => this.#user?.onDrain())
    this.socket.on('end', () => this.#onEnd())
    this.socket.on('error', (error) => this.#onError(error))
    this.socket.on('close', () => {
      this.#fail('connection_terminated')
      if (this.#buffer !== undefined) owner.returnBuffer(this.#buffer)
      owner.onClosed(this)
    })
  }

  isUsedBy(user: UpstreamRequest): boolean {
    return this.#user === user
  }

  /** Sends the head of a request on a connected, unused connection. */
  use(user: UpstreamRequest): void {
    if (this.#user !== undefined && this.#user !== user) throw new Error('the connection is in use')
    if (this.socket.destroyed) return
    this.#user = user
    this.deadline = Number.POSITIVE_INFINITY
    this.#parser.start(user, user.isHead)
    this.#isAnswered = false
    this.#writtenInTurn = this.#owner.turn
    this.#owner.onWritten()
    user.onConnected(this, this.socket.write(user.requestHead, 'latin1'))
  }

  /**
   * Keeps the memory of the current read from being filled again, because a write has not copied it yet.
   *
   * @returns what gives it back
   */
  holdBuffer(): () => void {
    const held = this.#buffer
    if (held === undefined) return () => {} // Node's own memory
    this.#buffer = this.#owner.takeBuffer()
    return () => this.#owner.returnBuffer(held)
  }

  /** Closes the connection: a request or a response is left unfinished. */
  abandon(): void {
    this.#user = undefined
    this.socket.destroy()
  }

  /** Its deadline has passed. */
  expire(): void {
    const isAwaitingHead = this.#user !== undefined && this.#writtenInTurn >= 0
    this.#fail(isAwaitingHead ? 'http_response_timeout' : 'connection_timeout')
  }

  #onData(chunk: Buffer): void {
    const user = this.#user
    const isTooSoon = this.#isReused && !this.#isAnswered && this.#writtenInTurn === this.#owner.turn
    if (user === undefined || this.#parser.done || isTooSoon) {
      this.#fail('connection_terminated')
      return
    }
    this.#isAnswered = true
    let isAllOfIt: boolean
    try {
      isAllOfIt = this.#parser.push(chunk)
      if (this.#user !== user) return // it abandoned the connection
      user.onRead()
    } catch (error) {
      this.#fail(faultOf(error))
      return
    }
    if (this.#parser.done) this.#release(isAllOfIt)
  }

  #release(isClean: boolean): void {
    const { head } = this.#parser
    if (this.#user === undefined) return
    this.#user = undefined
    this.#isReused = true
    const unusedMs = head === undefined ? 0 : unusedFor(head)
    // An upstream may answer before it has read the request: the next one would wait behind the rest.
    if (!isClean || unusedMs <= 0 || this.socket.writableLength > 0) {
      this.socket.destroy()
      return
    }
    if (this.socket.isPaused()) this.socket.resume() // a close would go unseen
    this.deadline = performance.now() + unusedMs
    this.#owner.onReusable(this)
  }

  /** The upstream closed cleanly. */
  #onEnd(): void {
    const user = this.#user
    try {
      if (user !== undefined && this.#parser.close()) {
        user.onRead()
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
    // With TLS 1.3 a server refuses the client certificate when the request has been written already.
    const isConnecting = this.#writtenInTurn < 0 || fault.startsWith('tls_')
    this.#fail(isConnecting ? fault : 'connection_terminated')
  }

  #fail(fault: UpstreamFault): void {
    const user = this.#user
    this.#user = undefined
    this.socket.destroy()
    if (user === undefined) return
    const isCut = this.#isAnswered && fault === 'connection_terminated'
    user.onFault(isCut ? 'http_response_incomplete' : fault, this.#isReused && !this.#isAnswered)
  }
}

/** How long an unused connection may wait for its next request; 0 when it cannot carry one. */
function unusedFor({ keepAlive, keepAliveSeconds }: UpstreamHead): number {
  if (!keepAlive) return 0
  return keepAliveSeconds === undefined
    ? UNUSED_MS
    : Math.min(keepAliveSeconds * 1000 - MARGIN_MS, MAX_UNUSED_MS)
}
