/**
 * Watches the status of files, to poll them rarely while nothing changes. libuv calls `stat` and compares, on
 * any file system, so no JavaScript runs: an idle process needs a third of the CPU time of such polls.
 */
import { unwatchFile, watchFile } from 'node:fs'

const INTERVAL_MS = 500

export class FileWatch {
  #paths: readonly string[] = []
  #onChange: (() => void) | undefined

  /** `onChange`: called within `INTERVAL_MS` after a change, at least once. */
  start(onChange: () => void): void {
    this.#onChange = onChange
  }

  stop(): void {
    this.#unwatch()
    this.#onChange = undefined
  }

  /** Watches these files instead of others, once started. Returns whether it has watched them before. */
  watch(paths: readonly string[]): boolean {
    const onChange = this.#onChange
    if (onChange === undefined) {
      return false
    }
    if (paths.join('\0') === this.#paths.join('\0')) {
      return true
    }
    this.#unwatch()
    this.#paths = paths
    for (const path of paths) {
      watchFile(path, { interval: INTERVAL_MS, persistent: false }, onChange)
    }
    return false
  }

  #unwatch(): void {
    for (const path of this.#paths) {
      if (this.#onChange !== undefined) {
        unwatchFile(path, this.#onChange)
      }
    }
    this.#paths = []
  }
}
