/**
 * The lines of the log that mark the life of a sidecar; operators and their tools wait for them.
 *
 * @module
 */
import type { Addresses, DrainReport } from './life-cycle.ts'
import type { Logger } from './log.ts'

/** Who is told of what. */
export interface Milestones {
  onListening(where: Addresses): void
  onStopped(report: DrainReport): void
}

/** Writes a line for each listener, and one for what was drained and cut. */
export function loggedMilestones(log: Logger): Milestones {
  return {
    onListening(where) {
      for (const listener of ['data', 'admin'] as const) {
        const { address, port } = where[listener]
        log.info({ listener, address, port }, 'listening')
      }
    },
    onStopped: (report) => log.info(report, 'stopped'),
  }
}
