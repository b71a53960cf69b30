/**
 * The signals of a long-running process, handled from `listen()` on: one that arrives while modules load is not lost,
 * so this imports nothing. The first SIGTERM or SIGINT requests a stop, a second one ends the process at once.
 */

type StopSignal = 'SIGTERM' | 'SIGINT'

export class Signals {
  /** What a second signal calls before it ends the process. */
  beforeExit = (): void => {}
  onHangUp = (): void => {}
  #stop: Promise<StopSignal> | undefined

  /** Resolves with the first signal that requests a stop. Within `echoMs`, set by the first call, a second is its echo. */
  listen(echoMs = 0): Promise<StopSignal> {
    this.#stop ??= new Promise((resolve) => {
      let firstAt: number | undefined
      const onStop = (signal: StopSignal) => {
        resolve(signal)
        if (firstAt !== undefined && performance.now() - firstAt >= echoMs) {
          this.beforeExit()
          process.exit(1)
        }
        firstAt ??= performance.now()
      }
      process.on('SIGTERM', onStop).on('SIGINT', onStop)
      process.on('SIGHUP', () => this.onHangUp())
    })
    return this.#stop
  }
}
