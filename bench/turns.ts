/** The turns of the event loop of a measured process, which it writes to a file by `turns.mjs`. */
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const SETTLE_MS = 1000
/** The file is written more often. */
const WRITTEN_MS = 200

/** CPU time in milliseconds; `turns.mjs` says what each is. */
export interface TurnTimes {
  readonly p99: number
  readonly longest: number
  readonly wait: number
}

export class MeasuredTurns {
  readonly nodeOption = `--import=${import.meta.resolve('./turns.mjs')}`
  readonly file: string

  constructor(directory: string) {
    this.file = join(directory, 'turns')
  }

  /** The environment variables of the process. */
  get env() {
    return { NODE_OPTIONS: this.nodeOption, BENCH_TURNS_FILE: this.file }
  }

  /** Begins anew, within 0.1 s. */
  restart(): void {
    rmSync(this.file, { force: true })
  }

  /** Begins anew after a pause, in which turns end that are not to be measured, such as those of a start. */
  async restartSettled(): Promise<void> {
    await sleep(SETTLE_MS)
    this.restart()
    await sleep(SETTLE_MS)
  }

  read(): TurnTimes {
    return JSON.parse(readFileSync(this.file, 'utf8'))
  }

  /** With the turns that have just ended. */
  async readSettled(): Promise<TurnTimes> {
    await sleep(WRITTEN_MS)
    return this.read()
  }
}
