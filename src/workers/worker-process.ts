/**
 * One worker, as its supervisor sees it.
 *
 * In: a process that runs the `worker` command. Out: what it was asked for, or a rejection: a worker that ends, or that
 * does not answer, leaves nobody waiting.
 *
 * @module
 */
import type { Worker } from 'node:cluster'
import type { AddressInfo } from 'node:net'
import type { Config } from '../config/schema.ts'
import type { DrainReport } from '../ops/life-cycle.ts'
import type { RegisteredFamily } from '../ops/samples.ts'
import type { Extent, FromWorker, PlainError, ToWorker, WorkerState } from './messages.ts'

/** The part of a cluster worker that is used. */
export type ForkedWorker = Pick<Worker, 'id' | 'process' | 'send' | 'isConnected'> & {
  on(event: 'message', listener: (message: FromWorker) => void): unknown
  on(event: 'exit', listener: (code: number | null, signal: string | null) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** How a worker ended. */
export interface WorkerEnd {
  readonly code: number | null
  readonly signal: string | null
  /** Why there never was a process, such as a limit on their number (`EAGAIN`). */
  readonly error?: Error
}

/** Whoever waits for something. */
interface Waiter<Value> {
  resolve(value: Value): void
  reject(error: unknown): void
}

/** What an error of a worker is to whoever started it. */
export type Revive = (error: PlainError) => Error

/** What a worker works with. */
export interface WorkerProcessOptions {
  readonly revive: Revive
}

/** A worker. */
export class WorkerProcess {
  readonly #worker: ForkedWorker
  /** Who waits for which answer, in the order in which they asked. */
  readonly #waiting = new Map<string, Waiter<never>[]>()
  readonly #revive: Revive
  #questions = 0
  #ended = false
  /** Its metrics as it told them last, by name: for when it cannot be asked any more. */
  readonly #lastMetrics = new Map<string, RegisteredFamily>()
  /** Whether it has its keys and credentials, or is getting them: it can tell its state. */
  made = false
  /** Whether it accepts connections. */
  listening = false
  #silentLooks = 0
  readonly ended: Promise<WorkerEnd>
  readonly #begun: Promise<void>

  /** @param worker - a process that has just been forked */
  constructor(worker: ForkedWorker, { revive }: WorkerProcessOptions) {
    this.#worker = worker
    this.#revive = revive
    worker.on('message', (message) => {
      this.#silentLooks = 0
      this.#onMessage(message)
    })
    this.#begun = this.#answer('begin')
    this.#begun.catch(() => {}) // whoever makes it is told, and it may never be made
    this.ended = new Promise((resolve) => {
      const end = (how: WorkerEnd): void => {
        this.#ended = true
        this.listening = false
        this.#rejectAll(new Error('a worker ended'))
        resolve(how)
      }
      worker.on('exit', (code, signal) => end({ code, signal }))
      // A process that could not be made never exits. Other errors are of one that still will.
      worker.on('error', (error) => {
        if (this.pid === undefined) end({ code: null, signal: null, error })
      })
    })
  }

  /** Its process id. */
  get pid(): number | undefined {
    return this.#worker.process.pid
  }

  /** Reads keys and credentials. Rejects with what is wrong with them. */
  async make(config: Config): Promise<void> {
    await this.#begun
    await this.#ask('make', { do: 'make', config })
    this.made = true
  }

  /** Its metrics as far as they are known. */
  get metrics(): readonly RegisteredFamily[] {
    return [...this.#lastMetrics.values()]
  }

  /** Begins to listen. */
  async listen(): Promise<AddressInfo> {
    const { address } = await this.#ask<{ address: AddressInfo }>('listen', { do: 'listen' })
    this.listening = true
    return address
  }

  /** Loads everything anew. */
  async reload(): Promise<void> {
    await this.#begun
    await this.#ask('reload', { do: 'reload' })
  }

  /** Stops it; it ends by itself afterwards. */
  async stop(lameDuck: boolean): Promise<DrainReport> {
    await this.#begun
    return (await this.#ask<{ report: DrainReport }>('stop', { do: 'stop', lameDuck })).report
  }

  /** Asks for its state. Rejects when it does not answer in time. */
  async tell(extent: Extent, patienceMs: number): Promise<WorkerState> {
    const question = ++this.#questions
    const giveUp = setTimeout(
      () => this.#reject(`tell ${question}`, new Error('a worker is silent')),
      patienceMs,
    )
    try {
      const { state } = await this.#ask<{ state: WorkerState }>(`tell ${question}`, {
        do: 'tell',
        question,
        extent,
      })
      return state
    } finally {
      clearTimeout(giveUp)
    }
  }

  /** Looks whether it says anything. Returns how many looks in a row it has been silent for. */
  look(): number {
    return this.#silentLooks++
  }

  /** Ends it at once. */
  kill(): void {
    this.#worker.process.kill('SIGKILL')
  }

  #ask<Value>(what: string, message: ToWorker): Promise<Value> {
    const answer = this.#answer<Value>(what)
    if (!this.#send(message)) this.#reject(what, new Error('a worker ended'))
    return answer
  }

  /** Waits for an answer, or for the end of the worker. */
  #answer<Value>(what: string): Promise<Value> {
    return new Promise<Value>((resolve, reject) => {
      this.#waiting.set(what, [...(this.#waiting.get(what) ?? []), { resolve, reject }])
    })
  }

  #send(message: ToWorker): boolean {
    if (this.#ended || !this.#worker.isConnected()) return false
    // A worker that ends meanwhile says so by its exit; without a callback Node would raise an event.
    this.#worker.send(message, undefined, undefined, () => {})
    return true
  }

  #onMessage(message: FromWorker): void {
    if (message.did === 'fail') {
      this.#reject(message.what, this.#revive(message.error))
      return
    }
    // Also of an answer that comes too late for whoever asked: a worker that is slow goes on counting.
    if (message.did === 'tell')
      for (const family of message.state.metrics) this.#lastMetrics.set(family.name, family)
    const what = message.did === 'tell' ? `tell ${message.question}` : message.did
    const waiter: Waiter<unknown> | undefined = this.#next(what)
    waiter?.resolve(message)
  }

  /** Takes whoever waits longest for an answer out of the line. */
  #next(what: string): Waiter<never> | undefined {
    const [waiter, ...others] = this.#waiting.get(what) ?? []
    if (others.length > 0) this.#waiting.set(what, others)
    else this.#waiting.delete(what)
    return waiter
  }

  #reject(what: string, error: Error): void {
    this.#next(what)?.reject(error)
  }

  #rejectAll(error: Error): void {
    const waiters = [...this.#waiting.values()].flat()
    this.#waiting.clear()
    for (const { reject } of waiters) reject(error)
  }
}
