/**
 * Slow hashing, one at a time, with a short queue in front that is fair to every client.
 *
 * In: jobs, and whose they are. Out: their results, or that there was no room. Whatever is asked for, at most one
 * job runs, and no more wait than there are places. Clients take turns, so that one that asks for many waits on
 * itself. While there are places anybody may take them; when there are none, a client with fewer jobs
 * waiting takes the place of the one with most, whose oldest job gives way. So whoever floods the queue from one
 * network delays others by one job, and never has them turned away.
 *
 * An scrypt run occupies one of libuv's four pool threads, and jose verifies tokens (through WebCrypto) on the
 * same four: with 40 runs under way a verification was seen to wait 6.5 s. One run at a time leaves three
 * threads free, which does the same as a worker thread of our own would, without its memory and its start-up
 * time. It needs a pool of at least two threads: `UV_THREADPOOL_SIZE` must not be 1.
 *
 * @module
 */

/** The outcome of a queued job: its result, or that it was not run. */
export type Hashed<T> = { readonly ran: true; readonly result: T } | { readonly ran: false }

/** Runs slow jobs one after the other. */
export interface HashQueue {
  /**
   * Queues a job.
   *
   * @param client - who shares turns and places: see `client-network.ts`
   * @returns a promise that ends as the job does, or says that it had no place, at once or when it lost it
   */
  run<T>(client: string, job: () => Promise<T>): Promise<Hashed<T>>
}

/** A job in the queue. */
interface QueuedJob {
  /** Runs it; ends when it is over, however that was. */
  readonly start: () => Promise<void>
  readonly giveWay: () => void
}

/**
 * Makes a queue.
 *
 * @param maxWaiting - how many jobs may wait behind the one that runs; at some 0.2 s each, 16 of them are about
 *   as long as a client should wait before it is told to come back
 */
export function createHashQueue({ maxWaiting = 16 }: { readonly maxWaiting?: number } = {}): HashQueue {
  // Whose turn is next stands first. Nobody is in here without a job.
  const clients = new Map<string, QueuedJob[]>()
  let waiting = 0
  let isRunning = false

  /** Takes the oldest job of a client; whoever has more goes to the end of the line. */
  function take(client: string, jobs: QueuedJob[]): QueuedJob | undefined {
    const job = jobs.shift()
    waiting--
    if (jobs.length === 0) clients.delete(client)
    return job
  }

  async function runAll(): Promise<void> {
    isRunning = true
    for (let next = first(clients); next !== undefined; next = first(clients)) {
      const [client, jobs] = next
      const job = take(client, jobs)
      if (clients.delete(client)) clients.set(client, jobs)
      await job?.start()
    }
    isRunning = false
  }

  /** Finds a place for one more job of a client, if need be at the cost of the client that has most. */
  function makeRoom(client: string): boolean {
    if (waiting < maxWaiting) return true
    let greediest: [string, QueuedJob[]] | undefined
    for (const entry of clients) {
      if (greediest === undefined || entry[1].length > greediest[1].length) greediest = entry
    }
    const own = clients.get(client)?.length ?? 0
    // Between clients that have as many the place would only be passed back and forth.
    if (greediest === undefined || greediest[1].length <= own + 1) return false
    take(...greediest)?.giveWay()
    return true
  }

  return {
    run<T>(client: string, job: () => Promise<T>): Promise<Hashed<T>> {
      if (isRunning && !makeRoom(client)) return Promise.resolve({ ran: false })
      return new Promise((resolve, reject) => {
        const entry: QueuedJob = {
          async start() {
            try {
              resolve({ ran: true, result: await job() })
            } catch (error) {
              reject(error)
            }
          },
          giveWay: () => resolve({ ran: false }),
        }
        const jobs = clients.get(client)
        if (jobs === undefined) clients.set(client, [entry])
        else jobs.push(entry)
        waiting++
        if (!isRunning) void runAll()
      })
    },
  }
}

function first<K, V>(map: ReadonlyMap<K, V>): [K, V] | undefined {
  const { value } = map.entries().next()
  return value
}
