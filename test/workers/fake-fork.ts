/**
 * A forked process that the test plays.
 *
 * @module
 */
import { EventEmitter } from 'node:events'
import type { FromWorker, ToWorker } from '../../src/workers/messages.ts'

/** A forked process that does nothing by itself. */
export class FakeFork extends EventEmitter {
  readonly id = 1
  readonly said: ToWorker[] = []
  killed: string | undefined
  connected = true
  readonly process = {
    pid: 4711,
    kill: (signal: string) => {
      this.killed = signal
      return true
    },
  }
  isConnected = () => this.connected
  send(message: ToWorker): boolean {
    this.said.push(message)
    return true
  }
  says(message: FromWorker): void {
    this.emit('message', message)
  }
}
