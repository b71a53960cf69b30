/**
 * The verbose period: `SIGUSR2` turns on `log.access: all` and `log.level: debug` for five minutes.
 * A second signal ends it. In a sidecar of several processes, the primary process receives
 * the signal and turns the workers on and off.
 */
import type { Logger } from '../base/log.ts'

const VERBOSE_MS = 5 * 60_000

export class VerboseLog {
  isOn = false
  readonly #log: Logger
  readonly #level: string
  readonly #onChange: (isOn: boolean) => void
  #timer: NodeJS.Timeout | undefined

  constructor(log: Logger, onChange: (isOn: boolean) => void = () => {}) {
    this.#log = log
    this.#level = log.level
    this.#onChange = onChange
  }

  /** The answer to the signal. */
  toggle(): void {
    clearTimeout(this.#timer)
    if (this.isOn) {
      this.#log.info({ verbose: false }, 'log.level and log.access are as set')
      this.set(false)
      return
    }
    this.set(true)
    this.#log.info({ verbose: true }, 'log.level is debug and log.access is all for five minutes')
    this.#timer = setTimeout(() => this.toggle(), VERBOSE_MS).unref()
  }

  /** In a worker, this is called for the primary process, which has the timer. */
  set(isOn: boolean): void {
    this.isOn = isOn
    const isFiner = isOn && !this.#log.isLevelEnabled('debug')
    this.#log.level = isFiner ? 'debug' : this.#level
    this.#onChange(isOn)
  }
}
