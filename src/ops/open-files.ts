/**
 * Detects that the process can open no more files, by opening one each second. Node does not report it: libuv
 * closes the connections of clients that it cannot accept.
 */
import { closeSync, openSync } from 'node:fs'
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

  /** Synchronous: `/dev/null` is on no disk, and asynchronous calls would wake up two more threads. */
  #check(): void {
    try {
      closeSync(openSync(devNull, 'r'))
      this.#set(false)
    } catch (error) {
      this.#set(isOutOfFiles(error))
    }
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
