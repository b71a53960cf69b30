/**
 * Runs scrypt jobs one at a time, because libuv verifies tokens on the same four threads.
 * The queue is short and fair by network (the /24 or /64 of a client), so that clients that
 * guess do not keep others out:
 *
 *   standing   the network                                       its jobs
 *   known      has had a successful login in the last hour       run first
 *   unknown    has not                                           run then
 *   failing    has had over 100 failed logins within a minute    run last
 *
 * Networks of one standing take turns.
 * A full queue drops a job of a lower standing, or of a network that waits with more jobs.
 */
import { createFixedWindow } from './fixed-window.ts'

/** In the order in which their jobs run. */
const STANDINGS = ['known', 'unknown', 'failing'] as const
type Standing = (typeof STANDINGS)[number]

/** At 0.1 to 0.2 s a job, the last place waits about 5 s. */
const MAX_WAITING = 32
const MAX_WAITING_OF_NETWORK = MAX_WAITING / 4

const KNOWN_SECONDS = 3600
const FAILURES_SECONDS = 60
const MAX_FAILURES = 100

interface Job {
  readonly network: string
  readonly run: () => Promise<void>
  readonly drop: () => void
}

export class HashingQueue {
  /** The waiting jobs by standing and network. The network whose turn is next is the first of its map. */
  readonly #waiting: Readonly<Record<Standing, Map<string, Job[]>>> = {
    known: new Map(),
    unknown: new Map(),
    failing: new Map(),
  }
  readonly #failures: ReturnType<typeof createFixedWindow<{ count: number }>>
  readonly #known: ReturnType<typeof createFixedWindow<object>>
  #isRunning = false

  constructor(monotonicNow?: () => number) {
    this.#failures = createFixedWindow(FAILURES_SECONDS, monotonicNow)
    this.#known = createFixedWindow(KNOWN_SECONDS, monotonicNow)
  }

  /** Must be called after each login of a network, with or without a job. */
  onLogin(network: string, verdict: 'accepted' | 'rejected'): void {
    if (verdict === 'accepted') {
      this.#known.delete(network) // the hour begins anew
      this.#known.set(network, {})
      return
    }
    const failures = this.#failures.get(network) ?? { count: 0 }
    failures.count++
    this.#failures.set(network, failures)
  }

  /**
   * Resolves with the result of the job, or with `busy` if the queue has no place for it.
   * Rejects as the job does.
   */
  run<T>(network: string, job: () => Promise<T>): Promise<T | 'busy'> {
    return new Promise((resolve, reject) => {
      const queued: Job = {
        network,
        run: () => job().then(resolve, reject),
        drop: () => resolve('busy'),
      }
      const standing = this.#standingOf(network)
      if (!this.#makeRoom(network, standing)) {
        queued.drop()
        return
      }
      const ofNetwork = this.#waiting[standing].get(network)
      if (ofNetwork === undefined) {
        this.#waiting[standing].set(network, [queued])
      } else {
        ofNetwork.push(queued)
      }
      this.#runNext()
    })
  }

  #standingOf(network: string): Standing {
    if ((this.#failures.get(network)?.count ?? 0) > MAX_FAILURES) {
      return 'failing'
    }
    return this.#known.has(network) ? 'known' : 'unknown'
  }

  /**
   * Returns whether a job of the network may wait. Drops another job if the queue is full and that is fairer.
   */
  #makeRoom(network: string, standing: Standing): boolean {
    const own = this.#countOf(network)
    if (own >= MAX_WAITING_OF_NETWORK) {
      return false
    }
    if (this.#count() < MAX_WAITING) {
      return true
    }
    const lowest = STANDINGS.findLast((each) => this.#waiting[each].size > 0) ?? standing
    if (STANDINGS.indexOf(lowest) < STANDINGS.indexOf(standing)) {
      return false
    }
    const [jobs = []] = [...this.#waiting[lowest].values()].sort((a, b) => b.length - a.length)
    // Within one standing, a network may only displace a job of a network that has at least two more.
    if (lowest === standing && jobs.length < own + 2) {
      return false
    }
    const dropped = jobs.pop()
    if (jobs.length === 0 && dropped !== undefined) {
      this.#waiting[lowest].delete(dropped.network)
    }
    dropped?.drop()
    return true
  }

  #count(): number {
    return STANDINGS.flatMap((standing) => [...this.#waiting[standing].values()]).flat().length
  }

  #countOf(network: string): number {
    return STANDINGS.flatMap((standing) => this.#waiting[standing].get(network) ?? []).length
  }

  #runNext(): void {
    if (this.#isRunning) {
      return
    }
    const job = this.#takeNext()
    if (job === undefined) {
      return
    }
    this.#isRunning = true
    job.run().finally(() => {
      this.#isRunning = false
      this.#runNext()
    })
  }

  #takeNext(): Job | undefined {
    for (const standing of STANDINGS) {
      const networks = this.#waiting[standing]
      const [first] = networks
      if (first === undefined) {
        continue
      }
      const [network, jobs] = first
      const job = jobs.shift()
      networks.delete(network)
      if (jobs.length > 0) {
        networks.set(network, jobs) // its next turn comes after those of the other networks
      }
      return job
    }
    return undefined
  }
}
