/**
 * A request as its client sent it: the head, and the body as it comes.
 *
 * The body is read for whoever wants it, at the pace at which it is taken: while nobody does no more is read from the
 * connection than has come already.
 *
 * @module
 */
import { NO_LINES } from '../http1/field-lines.ts'
import type { RawRequestHead } from '../http1/request-reader.ts'

/** Who reads a request's body. */
export interface BodyTaker {
  /** Bytes of the body. Their memory is read into again after the call, unless {@link ClientRequest.hold} is called in it. */
  onRequestBody(chunk: Buffer): void
  /** All of it has been told. */
  onRequestEnd(rawTrailers: readonly string[]): void
}

/** What a request's body is read from. */
export interface BodySource {
  /** Whether bytes are wanted may have changed. */
  onPace(): void
  /** Keeps the memory of the chunk that is being told from being read into, until the function returned is called. */
  hold(): () => void
}

/** A request. */
export class ClientRequest implements RawRequestHead {
  readonly method: string
  readonly url: string
  readonly httpVersion: '1.0' | '1.1'
  readonly rawHeaders: readonly string[]
  readonly isRemembered: boolean
  /** Its body has come whole. */
  complete = false
  readonly #source: BodySource
  #taker: BodyTaker | undefined
  #paused = false
  /** What came before anybody wanted it. */
  #kept: Buffer[] | undefined
  #rawTrailers: readonly string[] = NO_LINES
  #told = false
  #isUnwanted = false

  constructor(head: RawRequestHead, source: BodySource) {
    this.method = head.method
    this.url = head.url
    this.httpVersion = head.httpVersion
    this.rawHeaders = head.rawHeaders
    this.isRemembered = head.isRemembered
    this.#source = source
  }

  /** Whether more of the body may be read from the connection now. */
  get wantsBytes(): boolean {
    return !this.#paused && this.#kept === undefined
  }

  /** Gives the body to somebody, from its first byte on. */
  giveTo(taker: BodyTaker): void {
    this.#taker = taker
    this.#tell()
  }

  /** Nobody wants what is left of the body. */
  leaveUnread(): void {
    this.#taker = undefined
    this.#kept = undefined
    this.#isUnwanted = true
    this.pause()
  }

  /** Whoever takes the body takes no more for now. */
  pause(): void {
    this.#paused = true
    this.#source.onPace()
  }

  /** Whoever takes the body takes more of it. */
  resume(): void {
    this.#paused = false
    this.#tell()
  }

  /** Keeps the chunk that is being told; returns what to call when it is not needed any more. */
  hold(): () => void {
    return this.#source.hold()
  }

  /** Bytes of the body have come. */
  onBody(chunk: Buffer): void {
    if (this.#taker !== undefined && this.wantsBytes) {
      this.#taker.onRequestBody(chunk)
    } else if (!this.#isUnwanted) {
      this.#kept ??= []
      this.#kept.push(Buffer.from(chunk))
      this.#source.onPace()
    }
  }

  /** The body has come whole. */
  onEnd(rawTrailers: readonly string[]): void {
    this.complete = true
    this.#rawTrailers = rawTrailers
    this.#tell()
  }

  /** Tells what is there, as long as it is taken. */
  #tell(): void {
    const taker = this.#taker
    if (taker === undefined) return
    const kept = this.#kept
    if (kept !== undefined && !this.#paused) {
      this.#kept = undefined
      taker.onRequestBody(Buffer.concat(kept))
    }
    this.#source.onPace()
    if (!this.complete || this.#told || !this.wantsBytes) return
    this.#told = true
    taker.onRequestEnd(this.#rawTrailers)
  }
}

/** The values of a request's header lines of one name, in order. */
export function headerValues(rawHeaders: readonly string[], lowerCased: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === lowerCased)
}
