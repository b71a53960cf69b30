/**
 * Hears of changes in the credentials database at once.
 *
 * In: connections. Out: a call for each notification, and one whenever listening begins anew, as something may
 * have been missed. One connection is kept for it, and asked regularly whether it still works: a connection that was
 * lost on the way says nothing, just like one that has nothing to say. Listening is for speed only: where it is
 * not possible (a connection pooler in between, a read replica) regular questions find every change as well.
 *
 * @module
 */
import type { Connection, Connections } from './connections.ts'
import { pauseAfter } from './follower.ts'
import { queryOn } from './read.ts'
import { CHANNEL } from './schema.ts'

/** What a listener works with. */
export interface ListenerOptions {
  readonly connections: Connections
  /** Something may have changed. */
  readonly onNotify: () => void
  /** Told once when listening fails, until it works again. */
  readonly onDeaf: (cause: unknown) => void
  /** Milliseconds between two questions whether the connection still works, and for the answer. */
  readonly pingMs: number
  /** The longest pause between two tries, in milliseconds. */
  readonly longestDeafMs: number
}

/** Listens. */
export interface Listener {
  /** Gives the connection back. */
  stop(): void
}

/** Begins to listen. */
export function createListener(options: ListenerOptions): Listener {
  const { connections, onNotify, onDeaf, pingMs, longestDeafMs } = options
  let connection: Connection | undefined
  let failures = 0
  let stopped = false
  let listening = false
  let timer: NodeJS.Timeout | undefined

  async function open(): Promise<void> {
    let taken: Connection
    try {
      taken = await connections.take()
    } catch (cause) {
      failed(cause)
      return
    }
    if (stopped) {
      taken.release()
      return
    }
    connection = taken
    taken.on('notification', onNotify)
    taken.once('end', () => lost(taken, new Error('the connection was closed')))
    await ping(taken)
  }

  /** LISTEN is repeatable, so that it serves as the question, too. */
  async function ping(taken: Connection): Promise<void> {
    try {
      await queryOn(taken, pingMs)(`LISTEN ${CHANNEL}`)
    } catch (cause) {
      lost(taken, cause)
      return
    }
    failures = 0
    if (!listening) onNotify()
    listening = true
    // Not where it was given up meanwhile.
    if (connection === taken) timer = setTimeout(ping, pingMs, taken)
  }

  function lost(taken: Connection, cause: unknown): void {
    if (connection !== taken) return
    drop()
    failed(cause)
  }

  function drop(): void {
    clearTimeout(timer)
    listening = false
    const dropped = connection
    connection = undefined
    dropped?.off('notification', onNotify)
    dropped?.release(true)
  }

  function failed(cause: unknown): void {
    if (stopped) return
    failures++
    if (failures === 1) onDeaf(cause)
    timer = setTimeout(open, pauseAfter(failures, longestDeafMs))
  }

  void open()
  return {
    stop() {
      stopped = true
      drop()
    },
  }
}
