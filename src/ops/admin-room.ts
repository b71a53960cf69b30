/**
 * The part of a room (`room.ts`) on the admin listener.
 * With several workers, only their primary process has it.
 */
import type { RequestListener } from 'node:http'
import type { StatusProblem } from './problems.ts'
import type { Windows } from './samples.ts'

/** A line of the status page, in its card of features. */
export type StatusLine = Readonly<{ name: string; text: string }>

export interface AdminRoom {
  /** By their exact paths, without a query. */
  readonly routes?: ReadonlyMap<string, AdminRoute>
  /** The problems of the room, for the head of the status page. */
  problems?(windows: Windows): Iterable<StatusProblem>
  /** What the room shows on the status page. `windows.tenMinutes.ofRoom` reads its metrics. */
  statusLines?(windows: Windows): Iterable<StatusLine>
  start?(): void
  stop?(): unknown
}

export interface AdminRoute {
  /** Called for GET and HEAD. Must respond. */
  readonly handle: RequestListener
  /** A response may wait for an event: its connection is neither bounded nor timed out until then. */
  readonly mayWait: boolean
}
