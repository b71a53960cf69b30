/**
 * Finds out when the process may open no more files. Node does not tell it: libuv closes the connections of
 * clients that it cannot accept. So a file is opened each second.
 */
import { close, open } from 'node:fs'
import { devNull } from 'node:os'
import { isOutOfFiles } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'

const CHECK_MS = 1000

export class OpenFiles {
  /** Whether new clients are refused, because there is no open file for them. */
  areUsedUp = false
  readonly #log: Pick<Logger, 'error' | 'info'>
  #timer: NodeJS.Timeout | undefined

  constructor(log: Pick<Logger, 'error' | 'info'>) {
    this.#log = log
  }

  start(): void {
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #check(): void {
    open(devNull, 'r', (error, file) => {
      if (error === null) {
        close(file)
      }
      this.#set(isOutOfFiles(error))
    })
  }

  #set(areUsedUp: boolean): void {
    if (areUsedUp && !this.areUsedUp) {
      this.#log.error('no open file is left (ulimit -n): new clients are refused')
    }
    if (!areUsedUp && this.areUsedUp) {
      this.#log.info('open files are free again')
    }
    this.areUsedUp = areUsedUp
  }
}
