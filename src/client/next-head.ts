/**
 * Whether a client has begun to send its next request head. Node's parser reports only complete heads, so
 * this compares how many bytes the socket has read with how many it had read when the last response ended.
 */
import type { Socket } from 'node:net'
import { headerText } from '../http/headers.ts'
import type { SidecarRequest } from './request.ts'

export class NextHead {
  readonly #socket: Socket
  readonly #headMs: number
  /**
   * `socket.bytesRead` at the end of the previous response.
   * Undefined (unknown) while a request is served that had to wait: others may have arrived behind it.
   */
  #bytesBefore: number | undefined
  #endsAtMonotonicMs: number | undefined

  constructor(socket: Socket, headMs: number) {
    this.#socket = socket
    this.#headMs = headMs
    this.#bytesBefore = socket.bytesRead
  }

  /** A response has ended: the next head may begin. */
  restart(): void {
    this.#bytesBefore = this.#socket.bytesRead
    this.#endsAtMonotonicMs = undefined
  }

  /** The next request has waited. Until `restart`, a head is taken to have begun, and bytes to be lost. */
  stop(): void {
    this.#bytesBefore = undefined
  }

  get hasBegun(): boolean {
    return !this.#hasReadExactly(0)
  }

  /**
   * Called twice a second. Node's `headersTimeout` refuses most late heads earlier, but does
   * not start with empty lines.
   */
  isLate(monotonicNow: number): boolean {
    if (!this.hasBegun) {
      return false
    }
    this.#endsAtMonotonicMs ??= monotonicNow + this.#headMs
    return monotonicNow >= this.#endsAtMonotonicMs
  }

  /**
   * Whether Node may have read more bytes than the head of this request. Known limit: a head without
   * spaces after its colons, or one that begins before the previous response ends, hides some of them.
   */
  mayHaveLostBytes(req: SidecarRequest): boolean {
    const head = `${req.method} ${req.url} HTTP/1.1\r\n${headerText(req.rawHeaders)}\r\n`
    return !this.#hasReadExactly(head.length)
  }

  /** Whether this number of bytes has arrived since the previous response. False if it is unknown. */
  #hasReadExactly(bytes: number): boolean {
    return this.#bytesBefore !== undefined && this.#socket.bytesRead === this.#bytesBefore + bytes
  }
}
