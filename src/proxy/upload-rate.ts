/**
 * The minimum rate of an upload. In: a call with each tick.
 * Out: whether the client sends too slowly to go on.
 */

export interface UploadRateSettings {
  readonly limits: { readonly uploadBytesPerSecond: number }
  readonly timeouts: { readonly idleSeconds: number }
}

/**
 * Compares the bytes with the time that the upload waited for its client, `idleSeconds` at a time.
 * The time that it waited for the upstream does not count: the client could send nothing meanwhile.
 */
export class UploadRate {
  readonly #windowMs: number
  readonly #minBytes: number
  #waitedMs = 0
  #bytesBefore = 0
  #lastMonotonicMs: number

  constructor({ limits, timeouts }: UploadRateSettings, monotonicNow: number) {
    this.#windowMs = timeouts.idleSeconds * 1000
    this.#minBytes = limits.uploadBytesPerSecond * timeouts.idleSeconds
    this.#lastMonotonicMs = monotonicNow
  }

  /**
   * `bytes`: all that the upload has brought.
   * Must be called several times a second, whether the upload waits for its client or not.
   */
  isTooSlow(waitsForClient: boolean, bytes: number, monotonicNow: number): boolean {
    if (waitsForClient) {
      this.#waitedMs += monotonicNow - this.#lastMonotonicMs
    }
    this.#lastMonotonicMs = monotonicNow
    if (this.#waitedMs < this.#windowMs) {
      return false
    }
    const brought = bytes - this.#bytesBefore
    this.#waitedMs = 0
    this.#bytesBefore = bytes
    return brought < this.#minBytes
  }
}
