/**
 * Slow hashing, one at a time, with a short queue in front.
 *
 * In: jobs. Out: their results, in order, or at once that the queue is full. Whatever is asked for, at most one
 * job runs.
 *
 * An scrypt run occupies one of libuv's four pool threads, and jose verifies tokens (through WebCrypto) on the
 * same four: with 40 runs under way a verification was seen to wait 6.5 s. One run at a time leaves three
 * threads free, which does the same as a worker thread of our own would, without its memory and its start-up
 * time. It needs a pool of at least two threads: `UV_THREADPOOL_SIZE` must not be 1.
 *
 * @module
 */

/** Runs slow jobs one after the other. */
export interface HashQueue {
  /**
   * Queues a job. Returns nothing, and does not run it, when the queue is full; otherwise a promise that ends as
   * the job does.
   */
  run<T>(job: () => Promise<T>): Promise<T> | undefined
}

/**
 * Makes a queue.
 *
 * @param maxWaiting - how many jobs may wait behind the one that runs; at some 0.2 s each, 16 of them are about
 *   as long as a client should wait before it is told to come back
 */
export function createHashQueue({ maxWaiting = 16 }: { readonly maxWaiting?: number } = {}): HashQueue {
  let unfinished = 0
  let last: Promise<unknown> = Promise.resolve()
  return {
    run(job) {
      if (unfinished > maxWaiting) return undefined
      unfinished++
      const result = last.then(job).finally(() => unfinished--)
      last = result.catch(() => {}) // a job that fails does not hold up the next
      return result
    },
  }
}
