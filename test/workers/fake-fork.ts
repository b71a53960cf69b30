/**
 * Forked processes that the test plays.
 *
 * @module
 */
import { EventEmitter } from 'node:events'
import type { FromWorker, ToWorker, WorkerState } from '../../src/workers/messages.ts'

/** A forked process that does nothing by itself. */
export class FakeFork extends EventEmitter {
  readonly id = 1
  readonly said: ToWorker[] = []
  killed: string | undefined
  connected = true
  readonly process = {
    pid: 4711 as number | undefined,
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
  ends(code: number | null, signal: string | null): void {
    this.emit('exit', code, signal)
  }
  /** Turns out never to have been made. */
  fails(error: Error): void {
    this.process.pid = undefined
    this.emit('error', error)
  }
}

/** Where an obedient one listens. */
export const address = { address: '::', family: 'IPv6', port: 8082 }

/** A worker that does as it is told, unless the test wants something else said. */
export class ObedientFork extends FakeFork {
  instead: Partial<Record<ToWorker['do'], FromWorker | 'nothing'>> = {}
  state: Partial<WorkerState> = {}

  constructor() {
    super()
    setImmediate(() => this.says({ did: 'begin' }))
  }

  override send(message: ToWorker): boolean {
    super.send(message)
    const answer = this.instead[message.do] ?? this.#answer(message)
    if (answer !== 'nothing') setImmediate(() => this.says(answer))
    if (message.do === 'stop' && answer !== 'nothing') setImmediate(() => this.ends(0, null))
    return true
  }

  #answer(message: ToWorker): FromWorker | 'nothing' {
    switch (message.do) {
      case 'listen':
        return { did: 'listen', address }
      case 'stop':
        return { did: 'stop', report: { drained: 1, cut: 0 } }
      case 'tell':
        return {
          did: 'tell',
          question: message.question,
          state: { checks: [], keys: [], jwks: { keys: ['k'] }, metrics: [], rssBytes: 7, ...this.state },
        }
      case 'learn':
        return 'nothing'
      default:
        return { did: message.do }
    }
  }
}
