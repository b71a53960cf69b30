/**
 * The signals of a long-running process. They are recorded from `listen()` on, so that one that arrives while modules
 * load is not lost. The first SIGTERM or SIGINT requests a stop; a second one ends the process at once. Imports nothing.
 */

export type StopSignal = 'SIGTERM' | 'SIGINT'

export interface SignalsOptions {
  /** The part of `process` that is used. */
  readonly process: {
    on(signal: StopSignal | 'SIGHUP', listener: () => void): unknown
    exit(code: number): void
  }
  /** A second signal within this time of the first is a duplicate of it, in milliseconds. */
  readonly echoMs: number
  /** A monotonic clock, in milliseconds. */
  readonly monotonicNow: () => number
}

export class Signals {
  /** Called right before a second signal ends the process. */
  beforeExit = (): void => {}
  readonly #options: SignalsOptions
  #stop: Promise<StopSignal> | undefined
  #hungUp = false
  #onHangUp = () => {
    this.#hungUp = true
  }

  constructor(options: SignalsOptions) {
    this.#options = options
  }

  /** Handles signals from now on. */
  listen(): Promise<StopSignal> {
    this.#stop ??= new Promise((resolve) => {
      const { process, echoMs, monotonicNow } = this.#options
      let firstAt: number | undefined
      for (const signal of ['SIGTERM', 'SIGINT'] as const) {
        process.on(signal, () => {
          resolve(signal)
          if (firstAt !== undefined && monotonicNow() - firstAt >= echoMs) {
            this.beforeExit()
            process.exit(1)
          }
          firstAt ??= monotonicNow()
        })
      }
      process.on('SIGHUP', () => this.#onHangUp())
    })
    return this.#stop
  }

  /** Receives signals without effect. */
  ignore(): void {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) this.#options.process.on(signal, () => {})
  }

  /** Sets what SIGHUP does; does it at once if one has arrived already. */
  onHangUp(act: () => void): void {
    this.#onHangUp = act
    if (this.#hungUp) act()
  }
}
