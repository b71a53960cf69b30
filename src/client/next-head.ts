/**
 * What has arrived of the next head of a client connection, by the number of its bytes: Node's
 * parser reports only whole heads. In: the end of each response.
 * Out: whether the next head has begun, whether its rest is late, and whether Node has read on.
 */
import type { Socket } from 'node:net'
import { headerText } from '../http/headers.ts'
import type { SidecarRequest } from './request.ts'

export class NextHead {
  readonly #socket: Socket
  readonly #headMs: number
  /**
   * `socket.bytesRead` at the end of the previous response.
   * Undefined while a request is served that had to wait.
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

  /**
   * The next request has waited, and others may have arrived behind it: until `restart`, nothing is known.
   */
  stop(): void {
    this.#bytesBefore = undefined
  }

  get hasBegun(): boolean {
    return !this.#hasRead(0)
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
   * Whether more bytes than the head of this request have been read. Known limit: a head without
   * spaces after its colons, or one that begins before the previous response ends, hides some of them.
   */
  mayHaveLostBytes(req: SidecarRequest): boolean {
    const head = `${req.method} ${req.url} HTTP/1.1\r\n${headerText(req.rawHeaders)}\r\n`
    return !this.#hasRead(head.length)
  }

  /** Whether exactly so many bytes have arrived since the previous response. */
  #hasRead(bytes: number): boolean {
    return this.#bytesBefore !== undefined && this.#socket.bytesRead === this.#bytesBefore + bytes
  }
}
