/**
 * Which addresses have used which links, for one audit line for each pair.
 * The memory is bounded: a pair may be forgotten.
 */
import { LRUCache } from 'lru-cache'

const MAX_PAIRS = 10_000

export class LinkUses {
  readonly #seen = new LRUCache<string, true>({ max: MAX_PAIRS })

  /** Returns whether this is the first use of the link by the address, as far as is remembered. */
  isFirst(linkId: string, address: string): boolean {
    const pair = `${linkId} ${address}`
    const isKnown = this.#seen.get(pair) === true
    this.#seen.set(pair, true)
    return !isKnown
  }
}
