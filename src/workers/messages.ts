/**
 * What a supervisor and its workers say to each other, over the channel that Node gives them (JSON).
 *
 * @module
 */
import type { AddressInfo } from 'node:net'
import type { Config } from '../config/schema.ts'
import type { ReadyCheck } from '../ops/admin.ts'
import type { DrainReport } from '../ops/life-cycle.ts'
import type { RegisteredFamily } from '../ops/samples.ts'

/** What the admin listener tells of a sidecar, wherever its requests are served. */
export interface WorkerState {
  readonly checks: readonly ReadyCheck[]
  /** The public keys, as a JWK Set (RFC 7517). */
  readonly jwks: unknown
  readonly metrics: readonly RegisteredFamily[]
}

/** Which metrics a worker tells: all, those that only grow, or those of the status page; the latter two cost less. */
export type Extent = 'all' | 'counts' | 'status'

/** Said to a worker. */
export type ToWorker =
  | { readonly do: 'make'; readonly config: Config }
  | { readonly do: 'listen' }
  | { readonly do: 'reload' }
  | { readonly do: 'stop'; readonly lameDuck: boolean }
  | { readonly do: 'tell'; readonly question: number; readonly extent: Extent }

/** Said by a worker. */
export type FromWorker =
  /** It listens to what it is told; what was said before is lost. */
  | { readonly did: 'begin' }
  | { readonly did: 'make' }
  | { readonly did: 'listen'; readonly address: AddressInfo }
  | { readonly did: 'reload' }
  | { readonly did: 'stop'; readonly report: DrainReport }
  | { readonly did: 'tell'; readonly question: number; readonly state: WorkerState }
  | { readonly did: 'fail'; readonly what: 'make' | 'listen' | 'reload' | 'stop'; readonly error: PlainError }

/** An error on its way to another process, with what Node tells of a listener that could not be made. */
export interface PlainError {
  readonly name: string
  readonly message: string
  readonly code?: unknown
  readonly syscall?: unknown
  readonly address?: unknown
  readonly hostname?: unknown
  readonly port?: unknown
}

/** Takes an error apart. Its stack stays where it happened. */
export function plainError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { name: 'Error', message: 'unknown' }
  const { name, message, code, syscall, address, hostname, port }: Error & Partial<PlainError> = error
  return { name, message, code, syscall, address, hostname, port }
}
