/**
 * Chooses what happens to the version that a poll has found, from what became of earlier versions.
 * In: versions, and whether their loads succeeded.
 * Out: whether a version is kept, loaded, or left alone for a while.
 */

/**
 *   keep  it is the active version
 *   load  it is new, or an operator asks for it, or it was rejected long enough ago
 *   wait  it was rejected a short time ago
 */
export type Choice = 'keep' | 'load' | 'wait'

export class VersionChoice {
  readonly #rejectedMs: number
  /** Undefined until a version has been loaded. */
  #active: string | undefined
  /**
   * The version that was rejected after the last activation.
   * A forced reload can reject the active version itself.
   */
  #rejected: string | undefined
  #retryAtMonotonicMs = 0

  /**
   * @param rejectedMs - how long a rejected version is left alone, unless it returns after another version
   */
  constructor(active: string | undefined, rejectedMs: number) {
    this.#active = active
    this.#rejectedMs = rejectedMs
  }

  get hasActive(): boolean {
    return this.#active !== undefined
  }

  get hasRejected(): boolean {
    return this.#rejected !== undefined
  }

  choose(version: string, isForced: boolean, monotonicMs: number): Choice {
    const isRejected = version === this.#rejected
    if (!isRejected) {
      this.#retryAtMonotonicMs = 0
    }
    if (isForced) {
      return 'load'
    }
    if (isRejected) {
      return monotonicMs < this.#retryAtMonotonicMs ? 'wait' : 'load'
    }
    const isCurrent = version === this.#active && !this.hasRejected
    return isCurrent ? 'keep' : 'load'
  }

  activated(version: string): void {
    this.#active = version
    this.#rejected = undefined
  }

  /** Returns whether this is news: the version was not rejected before. */
  rejected(version: string, monotonicMs: number): boolean {
    const isNews = version !== this.#rejected
    this.#rejected = version
    this.#retryAtMonotonicMs = monotonicMs + this.#rejectedMs
    return isNews
  }
}
