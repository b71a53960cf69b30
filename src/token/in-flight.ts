/**
 * Which tokens are being verified, so that whoever asks for one of them meanwhile can share the outcome.
 *
 * In: a token's SHA-256 and the promise of its verdict. A table of fixed places, chosen by the digest: where two tokens
 * fall on one place, the later one is verified without being shared, so that its memory is bounded, too.
 *
 * It is no `Map`: one in which entries come and go is copied every so often, and each copy is kept alive by the one before
 * it. Once the collector counts a copy as old it takes all later ones for alive, with what is in them, until it looks
 * through the whole heap: measured, 100 bytes for each token under a flood of forged ones, and 5 like this.
 *
 * @module
 */
import type { Verdict } from './verdict.ts'

/** Places in the table. */
export const PLACES = 1024

interface Flight {
  readonly digest: string
  readonly pending: Promise<Verdict>
}

/** The tokens being verified. */
export class InFlight {
  readonly #flights: (Flight | undefined)[] = new Array(PLACES).fill(undefined)

  /** The verdict that is on its way for a token. */
  find(digest: string): Promise<Verdict> | undefined {
    const flight = this.#flights[placeOf(digest)]
    return flight?.digest === digest ? flight.pending : undefined
  }

  /** Lets others find a verdict, if there is a place for it. */
  add(digest: string, pending: Promise<Verdict>): void {
    this.#flights[placeOf(digest)] ??= { digest, pending }
  }

  /** A verdict is there. Does nothing if it could not be found, or only one for the same token that came later. */
  delete(digest: string, pending: Promise<Verdict>): void {
    if (this.find(digest) === pending) this.#flights[placeOf(digest)] = undefined
  }

  /** Nobody is to share what is on its way now. */
  clear(): void {
    this.#flights.fill(undefined)
  }
}

/** Ten bits of a digest of one byte a character. */
function placeOf(digest: string): number {
  return (digest.charCodeAt(0) << 2) | (digest.charCodeAt(1) & 3)
}
