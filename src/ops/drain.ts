/**
 * Stopping without cutting anybody off.
 *
 * In: a listener, and how long it may take. Out: how many requests were let finish and how many had to be cut.
 * First the lame duck: still accepting, so that whoever balances the load has time to look elsewhere, but each
 * answer ends its connection. Then no new connections, and time for what is under way. Then the end.
 *
 * @module
 */

/** What is drained. */
export interface Drainable {
  /** Requests that have been started and not answered yet. */
  readonly inFlight: number
  /** Closes connections on which nothing is in flight. */
  closeUnused(): void
  /** Destroys connections that have left HTTP; they are no requests. */
  closeTunnels(): void
  /** Accepts no more connections. Resolves when the last one is closed. */
  close(): Promise<void>
  /** Destroys every connection; returns how many requests that cut off. */
  cut(): number
}

/** How long each stage may take. */
export interface DrainOptions {
  readonly lameDuckMs: number
  /** Counted from the end of the lame duck. */
  readonly deadlineMs: number
  /** Waits; a test passes its own. */
  readonly sleep: (ms: number, unless: Promise<unknown>) => Promise<void>
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** What became of the requests in flight when the listener stopped listening. */
export interface DrainReport {
  readonly drained: number
  readonly cut: number
}

/** How often connections that have become unused are closed, in milliseconds. */
const STEP_MS = 50

/** Drains a listener. */
export async function drain(listener: Drainable, options: DrainOptions): Promise<DrainReport> {
  const { sleep, monotonicNow } = options
  await sleep(options.lameDuckMs, new Promise(() => {}))
  const inFlight = listener.inFlight
  let open = true
  const closed = listener.close().then(() => {
    open = false
  })
  // By the clock and not by counting steps: on a busy machine each takes longer, and whoever told us to stop
  // kills us when his own time is over.
  const deadline = monotonicNow() + options.deadlineMs
  for (let left = options.deadlineMs; open && left > 0; left = deadline - monotonicNow()) {
    // A response that promised to keep its connection, before we knew, leaves it unused.
    listener.closeUnused()
    if (listener.inFlight === 0) listener.closeTunnels() // they would go on for ever: nothing else is waited for
    await sleep(Math.min(STEP_MS, left), closed)
  }
  listener.closeTunnels()
  const cut = open ? listener.cut() : 0
  await closed
  return { drained: Math.max(0, inFlight - cut), cut }
}

/** Waits for a time, or for something that comes sooner. */
export function sleep(ms: number, unless: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    unless.then(() => {
      clearTimeout(timer)
      resolve()
    })
  })
}
