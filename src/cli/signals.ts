/**
 * The signals of a long-running process, recorded from `listen()` on: one that arrives while modules load is not lost,
 * so this imports nothing. The first SIGTERM or SIGINT requests a stop, a second one ends the process at once.
 */

export type StopSignal = 'SIGTERM' | 'SIGINT'

export class Signals {
  /** Called right before a second signal ends the process. */
  beforeExit = (): void => {}
  readonly #echoMs: number
  #stop: Promise<StopSignal> | undefined
  #hungUp = false
  #onHangUp = () => {
    this.#hungUp = true
  }

  /** @param echoMs - a second signal within this time is a duplicate of the first */
  constructor(echoMs: number) {
    this.#echoMs = echoMs
  }

  listen(): Promise<StopSignal> {
    this.#stop ??= new Promise((resolve) => {
      let firstAt: number | undefined
      const onStop = (signal: StopSignal) => {
        resolve(signal)
        if (firstAt !== undefined && performance.now() - firstAt >= this.#echoMs) {
          this.beforeExit()
          process.exit(1)
        }
        firstAt ??= performance.now()
      }
      process.on('SIGTERM', onStop).on('SIGINT', onStop)
      process.on('SIGHUP', () => this.#onHangUp())
    })
    return this.#stop
  }

  /** Receives signals without effect. */
  ignore(): void {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
  }

  /** Acts at once if a SIGHUP has arrived already. */
  onHangUp(act: () => void): void {
    this.#onHangUp = act
    if (this.#hungUp) act()
  }
}
