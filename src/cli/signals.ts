/**
 * The signals of a program that runs until it is told to stop.
 *
 * In: the signals of the process. Out: who waits for a stop, or for a word that files have changed, learns of what came
 * before it was asked for, too: a program is told to stop when it pleases the sender, and that may be while its modules
 * are loaded. The first signal asks to stop, the second one does not ask. Imports nothing, so that it is there first.
 *
 * @module
 */

/** A request to stop: which signal it was. */
export type StopSignal = 'SIGTERM' | 'SIGINT'

/** What signals work with. */
export interface SignalsOptions {
  /** The part of `process` that is used. */
  readonly process: {
    on(signal: StopSignal | 'SIGHUP', listener: (signal: StopSignal | 'SIGHUP') => void): unknown
    exit(code: number): void
  }
  /** A signal to stop that comes so soon after the first one is that one once more, in milliseconds. */
  readonly echoMs: number
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** The signals of a process. Until it is asked to hear them they do what they do to any process. */
export class Signals {
  /** Called when the second signal ends the process, right before it does. */
  lastAct = (): void => {}
  readonly #options: SignalsOptions
  /** Who waits for a stop. */
  readonly #waiting: ((signal: StopSignal) => void)[] = []
  /** The first signal that asked to stop. */
  #asked: { readonly signal: StopSignal; readonly at: number } | undefined
  #hearing = false
  #hungUp = false
  #onHangUp: (() => void) | undefined

  constructor(options: SignalsOptions) {
    this.#options = options
  }

  /** Hears them from now on. */
  hear(): void {
    if (this.#hearing) return
    this.#hearing = true
    const { process } = this.#options
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => this.#ask(signal))
    process.on('SIGHUP', () => {
      if (this.#onHangUp === undefined) this.#hungUp = true
      else this.#onHangUp()
    })
  }

  /** Hears them and does nothing about them. */
  ignore(): void {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) this.#options.process.on(signal, () => {})
  }

  /** Resolves with the first signal that asks to stop, or asked already. */
  stopRequested(): Promise<StopSignal> {
    this.hear()
    return new Promise((resolve) => {
      if (this.#asked === undefined) this.#waiting.push(resolve)
      else resolve(this.#asked.signal)
    })
  }

  /** Says what SIGHUP does; does it at once if there was one. */
  onHangUp(act: () => void): void {
    this.#onHangUp = act
    if (this.#hungUp) act()
    this.#hungUp = false
  }

  #ask(signal: StopSignal): void {
    const { process, echoMs, monotonicNow } = this.#options
    const now = monotonicNow()
    if (this.#asked === undefined) {
      this.#asked = { signal, at: now }
      for (const tell of this.#waiting) tell(signal)
    } else if (now - this.#asked.at >= echoMs) {
      this.lastAct()
      process.exit(1)
    }
  }
}
