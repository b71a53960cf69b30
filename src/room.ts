/**
 * The interface between the core and a room: a feature in a folder of its own, which `rooms.ts` creates.
 * The core knows no room. A room may refuse a request that would be forwarded or approved,
 * watch a request until its end, and answer paths of its own. Rooms that are switched off are not loaded, and
 * cost a request nothing.
 */
import type { Aggregator } from 'prom-client'
import type { Failure, UpstreamOutcome } from './base/errors.ts'
import type { RequestContext, SidecarRequest } from './client/request.ts'
import type { SidecarResponse } from './client/response.ts'
import type { DecisionRecord, RefusalDecision, ServiceDecision } from './gate/gate.ts'
import type { EndpointPlace } from './gate/route.ts'

/**
 * The part of a room in each process that serves requests.
 * `ops/admin-room.ts` has the part on the admin listener.
 */
export interface Room {
  /**
   * Called for each request whose head was read, before it is admitted, refused or decided.
   * May call `context.addWatcher`.
   */
  onRequest?(req: SidecarRequest): void
  /**
   * Called with each decision to forward or approve a request that has an upstream, before it is carried out.
   * May call `context.addWatcher`. Returns a refusal in place of the decision, or undefined.
   */
  review?(decision: ServiceDecision, context: RequestContext): RefusalDecision | undefined
  /** Called after keys, credentials or revocations have changed. */
  onAuthDataChange?(subject: 'keys' | 'credentials' | 'revocations'): void
  /** `subject` of the reload metrics, whose series then exist from the start. */
  readonly reloadSubject?: string
  /** Read at each scrape. Known series must exist at zero. */
  metrics?(): readonly RoomMetric[]
  /** Begins to poll the files of the room. */
  start?(): void
  /** Loads the files of the room again, even if they have not changed. Never rejects. */
  reload?(): Promise<unknown>
  /** Called after the drain. May return a promise. */
  stop?(): unknown
}

/** A path of the data listener that a room answers itself. It needs no token. */
export interface RoomEndpoint extends EndpointPlace {
  /** Answers a request of any method. A promise rejects only on an internal error. */
  respond(res: SidecarResponse): void | Promise<void>
}

/** `in`: from the client. `out`: to the client. */
export type Direction = 'in' | 'out'

/**
 * Follows one request, or several: a watcher may be shared by the requests of an account.
 * The calls for a request, in their order:
 *
 *   onDecision             when it is decided, and again when a request that waits is decided anew
 *   onForward              it waits for a connection to its upstream
 *   onResponse             the head of its response has arrived, or a 101
 *   onForwardEnd           forwarding has ended, or has become a tunnel
 *   onEnd                  once: its response is over, or its tunnel is closed
 *   onBytes, mayRead       any number of times before `onEnd`
 *   onReadEnd              once for each reader, also for one that has not asked `mayRead`
 */
export interface RequestWatcher {
  /** Additional fields of the access line and of audit lines. */
  readonly logFields?: LogFields | undefined
  /** The request has an access line also with `log.access: errors`. */
  readonly mustLog?: boolean
  /** Read when the head of the request is written to the upstream. */
  readonly upstreamHeaders?: UpstreamHeaders | undefined
  onDecision?(decision: DecisionRecord): void
  /** `queuedMonotonicMs`: since when it waits. */
  onForward?(
    upstream: { readonly host: string; readonly pathPrefix: string },
    queuedMonotonicMs: number,
  ): void
  onResponse?(status: number): void
  /** `refused`: the gate has refused the request while it waited. */
  onForwardEnd?(outcome: UpstreamOutcome | 'refused'): void
  /** Called with the body bytes that have moved. */
  onBytes?(direction: Direction, bytes: number): void
  /**
   * Whether a transfer may read on. If false, the transfer pauses, and the watcher must call
   * `reader.readOn` later. May be called again for a reader that waits already.
   */
  mayRead?(direction: Direction, reader: PacedReader): boolean
  /** The reader reads no more, whether it waits or not. */
  onReadEnd?(reader: PacedReader): void
  onEnd?(end: RequestEnd): void
}

export type LogFields = Readonly<Record<string, string | undefined>>

/** One direction of a transfer or tunnel. */
export interface PacedReader {
  /** Asks `mayRead` again, and reads on if it may. */
  readOn(): void
}

/** What replaces header lines of the client. */
export interface UpstreamHeaders {
  /** In lower case. These lines of the client are not forwarded. */
  readonly removed: ReadonlySet<string>
  /** Whole lines that are added, each with its line end. */
  readonly addedLines: string
}

export interface RequestEnd {
  /** The status that metrics and logs show: that of the response, or of its failure if it was truncated. */
  readonly status: number
  readonly reason: Failure | undefined
  readonly seconds: number
}

/** A metric and its values. `name` is without the prefix of all metrics. */
export interface RoomMetric {
  readonly name: string
  readonly type: 'counter' | 'gauge'
  readonly help: string
  /** How the values of several workers become one. */
  readonly aggregator: Aggregator
  readonly values: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[]
}
