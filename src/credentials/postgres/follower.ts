/**
 * When the database is asked for changes, and whether it can be relied on.
 *
 * In: a way to take over what the database holds now. Out: it is called at regular times, when the database tells of
 * a change, and before each login, but never twice at a time: whoever asks meanwhile shares the next call. So a
 * login rests on what the database held after the login had come, and a thousand logins at a time cost a few
 * questions. When a call fails the database is away: from then on nobody waits for it, and it is tried again
 * after growing pauses until it is back.
 *
 * @module
 */

/** What a follower works with. */
export interface FollowerOptions {
  /** Takes over what the database holds now. Rejects when that is not possible; must end in bounded time. */
  readonly update: () => Promise<void>
  /** Milliseconds between two calls when nothing asks for one. */
  readonly pollMs: number
  /** The longest pause between two tries while the database is away, in milliseconds. */
  readonly longestPauseMs: number
  /** How long a login may wait, in milliseconds. */
  readonly patienceMs: number
  /** Told once when the database goes away, and once when it is back. */
  readonly onAway: (cause: unknown) => void
  readonly onBack: () => void
}

/** Follows a database. */
export interface Follower {
  /** Whether the last call failed. */
  readonly away: boolean
  /**
   * Resolves with true when what the database held at some moment after this call is in force; with false when the
   * database is away or takes too long. Never rejects.
   */
  confirm(): Promise<boolean>
  /** Asks for changes now: there seems to be one. Resolves when that has been tried; never rejects. */
  wake(): Promise<void>
  /** Nothing is asked any more from now on. */
  stop(): void
}

const FIRST_PAUSE_MS = 100

/** The pause after so many failures in a row; each a little different, so that replicas do not come all at once. */
export function pauseAfter(failures: number, longestMs: number): number {
  return Math.min(longestMs, FIRST_PAUSE_MS * 2 ** (failures - 1)) * (0.8 + 0.2 * Math.random())
}

/** Begins to follow; the first update has been made already. */
export function createFollower(options: FollowerOptions): Follower {
  const { update, pollMs, longestPauseMs, patienceMs } = options
  let failures = 0
  let stopped = false
  let timer = setTimeout(wake, pollMs)
  let running: Promise<boolean> | undefined
  let next: Promise<boolean> | undefined

  function start(): Promise<boolean> {
    clearTimeout(timer)
    running = update().then(succeeded, failed).finally(ended)
    return running
  }

  function succeeded(): boolean {
    if (failures > 0) options.onBack()
    failures = 0
    return true
  }

  function failed(cause: unknown): boolean {
    failures++
    if (failures === 1 && !stopped) options.onAway(cause)
    return false
  }

  function ended(): void {
    running = undefined
    if (stopped) return
    clearTimeout(timer)
    timer = setTimeout(wake, failures === 0 ? pollMs : pauseAfter(failures, longestPauseMs))
  }

  /** An update that begins after this call; a failure of the one before it is a failure of this one, too. */
  function fresh(): Promise<boolean> {
    if (running === undefined) return start()
    next ??= running.then((succeeded) => {
      next = undefined
      return succeeded && !stopped && (running ?? start())
    })
    return next
  }

  async function wake(): Promise<void> {
    if (!stopped) await fresh()
  }

  return {
    get away() {
      return failures > 0
    },
    async confirm() {
      if (stopped || failures > 0) return false
      let timeout: NodeJS.Timeout | undefined
      const tooLate = new Promise<false>((resolve) => {
        timeout = setTimeout(resolve, patienceMs, false)
      })
      const confirmed = await Promise.race([fresh(), tooLate])
      clearTimeout(timeout)
      return confirmed
    },
    wake,
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
}
