/**
 * Parses large lists in worker threads, so that requests do not wait. A list that needs too much time or
 * memory ends its thread.
 */
import { on } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { type Batch, type Kind, type ParseJob, THREAD_ENTRY } from './list-parser.ts'

export interface ThreadLimits {
  readonly maxSeconds: number
  readonly maxHeapMb: number
  /** A thread that has parsed more is ended, because it keeps hundreds of megabytes. */
  readonly maxReusedBytes: number
}

export class ParseThreads {
  readonly #limits: ThreadLimits
  /** Kept for the next job: its code is compiled, so it parses 280 kB in 0.14 s instead of 1.2 s. */
  #idle: Worker | undefined

  constructor(limits: ThreadLimits) {
    this.#limits = limits
  }

  /**
   * Yields the batches of a job. Takes its bytes, which must not be used any more.
   * Rejects if the thread has ended, is late, or the parser has failed. The error may quote the list.
   */
  async *parse<K extends Kind>(job: ParseJob<K>, signal?: AbortSignal): AsyncGenerator<Batch<K>> {
    const { maxSeconds, maxReusedBytes } = this.#limits
    const { length, buffer, byteLength } = job.bytes
    const thread = this.#idle ?? this.#start()
    this.#idle = undefined
    const late = new AbortController()
    const end = () => late.abort()
    const timer = setTimeout(end, maxSeconds * 1000)
    signal?.addEventListener('abort', end)
    let isDone = false
    try {
      // A small buffer is a part of one that others use, too.
      const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength
      thread.postMessage(job, isWhole ? [buffer] : [])
      for await (const [message] of on(thread, 'message', { signal: late.signal })) {
        const batch: Batch<K> | null = message
        if (batch === null) {
          isDone = true
          return
        }
        // The thread sends one batch for each request:
        // Node deserializes all messages that arrive together in one turn.
        thread.postMessage(null)
        yield batch
      }
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      if (isDone && length <= maxReusedBytes && this.#idle === undefined) {
        this.#idle = thread
      } else {
        await thread.terminate()
      }
    }
  }

  #start(): Worker {
    const thread = new Worker(THREAD_ENTRY, {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.maxHeapMb, maxYoungGenerationSizeMb: 4 },
    })
    thread.unref() // the timer of a job keeps the process alive
    thread.once('exit', () => {
      if (this.#idle === thread) {
        this.#idle = undefined
      }
    })
    return thread.on('error', () => {}) // without a listener, an error ends the process
  }
}

/** Without a thread, for small lists. Requests are served between the batches. */
export async function* inTurns<T>(batches: Iterable<T>): AsyncGenerator<T> {
  for (const batch of batches) {
    yield batch
    await nextTurn()
  }
}
