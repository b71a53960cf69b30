/**
 * The part of a room (`room.ts`) on the admin listener.
 * With several workers, only their primary process has it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { RoomMetric } from '../room.ts'
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
  /** Read at each scrape, beside those of the processes that serve requests. */
  metrics?(): readonly RoomMetric[]
  start?(): void
  /** Called before the admin listener closes its connections. Later requests must not wait. */
  stop?(): unknown
}

export interface AdminRoute {
  /**
   * Called for GET and HEAD. Must respond.
   * @param mayWait - lets the response wait for an event: until the response is closed, its connection
   *   is neither bounded nor timed out. Must be called only for clients that have proved themselves
   */
  handle(req: IncomingMessage, res: ServerResponse, mayWait: () => void): void
}
