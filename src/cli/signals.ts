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
  readonly #stop: Promise<StopSignal>
  #onStop: (signal: StopSignal) => void = () => {}
  #askedAt: number | undefined
  #hearing = false
  #hungUp = false
  #onHangUp: (() => void) | undefined

  constructor(options: SignalsOptions) {
    this.#options = options
    this.#stop = new Promise((resolve) => {
      this.#onStop = resolve
    })
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
    return this.#stop
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
    if (this.#askedAt === undefined) {
      this.#askedAt = now
      this.#onStop(signal)
    } else if (now - this.#askedAt >= echoMs) {
      this.lastAct()
      process.exit(1)
    }
  }
}
