/**
 * What `/status.json` says: the fields and their units, as `docs/status-page.md` documents them.
 *
 * Nothing in it is secret. Where something cannot be told yet it is null, never zero.
 *
 * @module
 */
import type { ReadyCheck } from '../admin.ts'
import type { Percentiles } from './window.ts'

/** The state of one sidecar. Times are RFC 3339 in UTC. */
export interface Status {
  readonly time: string
  readonly version: string
  /** Version of Node. */
  readonly node: string
  readonly startedAt: string
  readonly uptimeSeconds: number
  /** Whether every check holds. */
  readonly ready: boolean
  /** As in `/readyz`. */
  readonly checks: readonly ReadyCheck[]
  /** The time that counts and percentiles are of. */
  readonly window: {
    readonly seconds: number
    readonly everySeconds: number
    /** Whether there are too few samples for a rate. */
    readonly collecting: boolean
  }
  readonly requests: {
    readonly count: number
    /** Between the last two samples. */
    readonly perSecond: number | null
    /** By class of status; `errorRatio` is the share of `5xx`. */
    readonly byStatus: Readonly<Record<string, number>>
    readonly errorRatio: number | null
    readonly inFlight: number
    readonly connections: number
  }
  /** Tokens that were refused. */
  readonly rejections: {
    readonly count: number
    readonly perSecond: number | null
    readonly byReason: Readonly<Record<string, number>>
  }
  /** Of each route with requests, from the request head to the end of the response; the first is `all` of them. */
  readonly latency: readonly (Percentiles & { readonly route: string; readonly count: number })[]
  readonly cache: {
    readonly hits: number
    readonly misses: number
    readonly hitRatio: number | null
    readonly entries: number
    readonly capacity: number
    /** Since the start. */
    readonly evictions: number
  }
  readonly logins: {
    readonly issued: number
    readonly failed: number
    readonly byReason: Readonly<Record<string, number>>
  }
  readonly keys: readonly StatusKey[]
  /** Where keys come from another issuer: when it last sent a good set. Null where they do not. */
  readonly issuer: { readonly ageSeconds: number | null } | null
  readonly upstreams: readonly StatusUpstream[]
  readonly credentials: { readonly kind: 'file' | 'postgres' | 'none'; readonly state: string }
  readonly revocations: { readonly inForce: number }
  readonly reloads: readonly StatusReload[]
  readonly process: {
    readonly rssBytes: number
    /** Since the last sample. */
    readonly eventLoopLagP99Seconds: number
    /** In the window. */
    readonly eventLoopLagWorstSeconds: number
    readonly logLinesDropped: number
  }
  readonly series: StatusSeries
}

/** A key that verifies. */
export interface StatusKey {
  readonly kid: string
  readonly alg: string
  /** Whether it signs new tokens. */
  readonly signs: boolean
  readonly createdAt: string
  readonly ageSeconds: number
  /** For how many seconds tokens of this key may still live; 0: it can be retired. */
  readonly tokensLiveSeconds: number
}

/**
 * How an upstream did in the window. `failing`: the last requests failed; `degraded`: some failed; `idle`: there were
 * none.
 */
export type UpstreamState = 'ok' | 'degraded' | 'failing' | 'idle'

/** One upstream. */
export interface StatusUpstream {
  readonly prefix: string
  /** Scheme, host and port, or the path of the socket. */
  readonly address: string
  readonly state: UpstreamState
  readonly connections: number
  readonly queued: number
  readonly count: number
  /** Those that failed for a fault of the upstream or of ours; what clients did is no fault. */
  readonly failed: number
  readonly failedRatio: number | null
  /** Every outcome that occurred. */
  readonly outcomes: Readonly<Record<string, number>>
  /** The latest fault of the window, and the end of the step it was seen in. */
  readonly lastFault: { readonly outcome: string; readonly time: string } | null
  /** To the head of the response. */
  readonly firstByte: Percentiles
}

/** What became of new versions of something. */
export interface StatusReload {
  readonly subject: string
  /** Since the start. */
  readonly ok: number
  readonly failed: number
  /** Whether the newest version cannot be used, and an older one is in force. */
  readonly failing: boolean
  readonly lastGoodAt: string | null
}

/** One value for each step between two samples, oldest first; `times` are the ends of the steps, in epoch seconds. */
export interface StatusSeries {
  readonly times: readonly number[]
  readonly requestsPerSecond: readonly (number | null)[]
  /** Answers of class `5xx`. */
  readonly errorsPerSecond: readonly (number | null)[]
  readonly rejectionsPerSecond: Readonly<Record<string, readonly (number | null)[]>>
  readonly p50Seconds: readonly (number | null)[]
  readonly p90Seconds: readonly (number | null)[]
  readonly p99Seconds: readonly (number | null)[]
}
