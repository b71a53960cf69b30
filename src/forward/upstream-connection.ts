/**
 * One connection to an upstream.
 *
 * It carries one request at a time, reads the one response that belongs to it, and is used again only when both
 * are whole and not a byte came that nobody asked for. A response that is there sooner than its request can have
 * been read (in the very turn of the event loop in which the request was written) is nobody's either: an upstream,
 * or whoever can write to it, must not choose what the next client receives (CVE-2026-48931).
 *
 * @module
 */
import type { OnReadOpts, Socket } from 'node:net'
import type { Deadlines, Waiting } from '../http/deadlines.ts'
import type { MessageLimits } from '../http1/message-reader.ts'
import type { ReadBlock, ReadMemory } from '../read-memory.ts'
import { hearLastWords } from './last-words.ts'
import { type ResponseHead, ResponseParser, type ResponseSink } from './response-parser.ts'
import type { Connect } from './upstream-address.ts'
import { faultOf, type UpstreamFault } from './upstream-fault.ts'

/** Who uses a connection: it gives the request and is told of the response, or of why there is none. */
export interface ConnectionUser extends ResponseSink {
  /** The head of the request, each character one byte. */
  readonly requestHead: string
  /** The request is HEAD: its response has no body. */
  readonly isHead: boolean
  /**
   * The head has been written: the body may follow.
   *
   * @param room - whether the upstream takes more bytes now; otherwise `onDrain` says when
   */
  onConnection(connection: UpstreamConnection, room: boolean): void
  /** All that has come so far has been told. */
  onRead(): void
  /** The upstream takes bytes again. */
  onDrain(): void
  /**
   * The upstream agreed to another protocol. The connection is the user's from now on; nothing else is told of it.
   * Only a request that asked for it has this method.
   *
   * @param head - the head of the 101
   * @param rest - the first bytes of the other protocol
   */
  readonly onUpgraded?: (head: ResponseHead, socket: Socket, rest: Buffer) => void
  /**
   * The connection cannot carry the request, or the rest of its response. The last call.
   *
   * @param fault - what happened
   * @param stale - the connection had been used before and not a byte of a response came: most likely the upstream
   *   had closed it before the request reached it
   */
  onFault(fault: UpstreamFault, stale: boolean): void
}

/** Who owns a connection and decides what it is used for next. */
export interface ConnectionOwner {
  /** Grows with each turn of the event loop in which a request was written. */
  readonly turn: number
  /** What its connections read into. */
  readonly memory: ReadMemory
  /** A request was written in this turn. */
  onWrite(): void
  /** A response is whole and the connection can carry another request, from the next turn on. */
  onFree(connection: UpstreamConnection): void
  onClosed(connection: UpstreamConnection): void
}

/** What a connection works with. */
export interface ConnectionOptions {
  readonly connect: Connect
  /** The event that says a request can be written: `connect`, or `secureConnect` with TLS. */
  readonly readyEvent: 'connect' | 'secureConnect'
  readonly owner: ConnectionOwner
  readonly deadlines: Deadlines
  /** How long connecting may take, TLS included. */
  readonly connectMs: number
  readonly limits: MessageLimits
}

/** A connection that is being made, in use, or waiting for its next use. */
export class UpstreamConnection implements Waiting {
  /** When connecting must be done; while unused, when it is closed; `Infinity` in use. */
  deadline: number
  readonly socket: Socket
  readonly #options: ConnectionOptions
  /** Who uses it; undefined while it is unused. */
  #user: ConnectionUser | undefined
  /** Reads the response; undefined until a request has been written. */
  #parser: ResponseParser | undefined
  #usedBefore = false
  /** A byte of the response has come. */
  #answered = false
  #sentInTurn = -1
  /** What is read into, where we read for ourselves. */
  #block: ReadBlock | undefined

  /** Begins to connect, for a first user. */
  constructor(options: ConnectionOptions, user: ConnectionUser) {
    this.#options = options
    this.#user = user
    this.deadline = options.deadlines.monotonicNow() + options.connectMs
    options.deadlines.add(this)
    // Whoever takes the connection over for another protocol needs a stream like any other.
    this.socket = user.onUpgraded === undefined ? options.connect(this.#directRead()) : options.connect()
    this.socket.setNoDelay(true)
    hearLastWords(this.socket, () => this.#sentInTurn !== options.owner.turn)
    this.socket.once(options.readyEvent, () => this.#start(user))
    this.socket.on('data', this.#onData)
    this.socket.on('drain', () => this.#user?.onDrain())
    this.socket.on('end', this.#onEnd)
    this.socket.on('error', this.#onError)
    this.socket.on('close', () => this.#onClose())
  }

  /** Whether it is being made for, or used by, this request. */
  isFor(user: ConnectionUser): boolean {
    return this.#user === user
  }

  /** Whether it can carry a request; otherwise it is about to close, if it has not yet. */
  get isOpen(): boolean {
    return this.socket.writable
  }

  /** Gives an unused, open connection its next request. */
  use(user: ConnectionUser): void {
    this.#user = user
    this.#start(user)
  }

  /**
   * Keeps the bytes that are being told now for longer than that call: they are read over unless somebody holds them.
   *
   * @returns what to call when they are not needed any more
   */
  hold(): () => void {
    return this.#block?.hold() ?? NOTHING_HELD
  }

  /** The user wants nothing more of it: closes the connection, since a request or a response is left unfinished. */
  abandon(): void {
    this.#user = undefined
    this.socket.destroy()
  }

  /** Connecting took too long, or nobody used it. */
  expire(): void {
    this.#fail('connection_timeout')
  }

  #start(user: ConnectionUser): void {
    this.deadline = Number.POSITIVE_INFINITY
    this.#parser = new ResponseParser(user, user.isHead, this.#options.limits, user.onUpgraded !== undefined)
    this.#answered = false
    this.#sentInTurn = this.#options.owner.turn
    this.#options.owner.onWrite()
    user.onConnection(this, this.socket.write(user.requestHead, 'latin1'))
  }

  /**
   * Reads into memory that serves again once nobody holds what was read. Without the 64 KiB that Node's streams take
   * for every read, a small response costs some 2 microseconds less, and a large one no memory.
   */
  #directRead(): OnReadOpts {
    const { memory } = this.#options.owner
    let block = memory.take()
    this.#block = block
    return {
      buffer: () => {
        if (block.held) {
          block.release()
          block = memory.take()
          this.#block = block
        }
        return block.bytes
      },
      callback: (bytes) => {
        this.#onData(block.bytes.subarray(0, bytes))
        return true
      },
    }
  }

  readonly #onData = (chunk: Buffer): void => {
    const user = this.#user
    const parser = this.#parser
    if (user === undefined || parser === undefined || this.#isTooSoon()) {
      this.#fail('connection_terminated')
      return
    }
    this.#answered = true
    let taken: number
    try {
      taken = parser.push(chunk)
    } catch (error) {
      this.#fail(faultOf(error))
      return
    }
    // The user may have abandoned the connection on what it was told.
    if (this.#user !== user) return
    if (!parser.done) {
      user.onRead()
      return
    }
    if (parser.upgraded === undefined) this.#release(parser, taken === chunk.length)
    else this.#handOver(user, parser.upgraded, chunk.subarray(taken))
  }

  #handOver(user: ConnectionUser, head: ResponseHead, rest: Buffer): void {
    this.#user = undefined
    this.socket.off('data', this.#onData)
    this.socket.off('end', this.#onEnd)
    user.onUpgraded?.(head, this.socket, rest)
  }

  /** Whether what came cannot be the answer to a request written in this turn of the event loop. */
  #isTooSoon(): boolean {
    return this.#usedBefore && !this.#answered && this.#sentInTurn === this.#options.owner.turn
  }

  #release(parser: ResponseParser, clean: boolean): void {
    this.#user = undefined
    this.#parser = undefined
    this.#usedBefore = true
    const unusedMs = unusedFor(parser)
    // An upstream may answer before it has taken the request: the next one would wait behind the rest.
    if (!clean || unusedMs <= 0 || this.socket.writableLength > 0) {
      this.socket.destroy()
      return
    }
    if (this.socket.isPaused()) this.socket.resume() // else nobody would see it close
    this.deadline = this.#options.deadlines.monotonicNow() + unusedMs
    this.#options.owner.onFree(this)
  }

  /** The upstream closed cleanly: the end of a body that says so, too early for any other. */
  readonly #onEnd = (): void => {
    const parser = this.#parser
    if (parser === undefined) this.socket.destroy()
    else if (!wasReset(this.socket) && parser.close()) this.#release(parser, false)
    else this.#fail('connection_terminated')
  }

  readonly #onError = (error: Error): void => {
    const fault = faultOf(error)
    // With TLS 1.3 a server refuses our certificate when we have sent the request already.
    const connecting = this.#parser === undefined || fault.startsWith('tls_')
    this.#fail(connecting ? fault : 'connection_terminated')
  }

  #onClose(): void {
    this.#fail('connection_terminated')
    this.#options.deadlines.delete(this)
    this.#block?.release()
    this.#options.owner.onClosed(this)
  }

  /** Closes the connection and tells its user, if there is one. */
  #fail(fault: UpstreamFault): void {
    const user = this.#user
    this.#user = undefined
    this.socket.destroy()
    if (user === undefined) return
    const cut = this.#answered && fault === 'connection_terminated'
    user.onFault(cut ? 'http_response_incomplete' : fault, this.#usedBefore && !this.#answered)
  }
}

/**
 * Whether a TCP connection that was told to have ended was reset. Node tells a reset that comes together with data
 * as a clean end, but such a socket has no peer any more: asked for the first time, it cannot name its port.
 */
function wasReset(socket: Socket): boolean {
  // A unix socket has no ports at all.
  return socket.localPort !== undefined && socket.remotePort === undefined
}

/** What was read by a stream of Node's is nobody's but the reader's. */
const NOTHING_HELD = (): void => {}

/** Milliseconds for which a connection is kept when the upstream does not say how long it keeps it. */
const UNUSED_MS = 4000
const MAX_UNUSED_MS = 60_000
/** The upstream's clock started before ours: give up its connections sooner than it does. */
const MARGIN_MS = 1000

/** How long an unused connection may wait for its next request; 0 when it cannot carry one. */
function unusedFor(parser: ResponseParser): number {
  if (!parser.keepAlive) return 0
  const promised = parser.keepAliveSeconds
  return promised === undefined ? UNUSED_MS : Math.min(promised * 1000 - MARGIN_MS, MAX_UNUSED_MS)
}
