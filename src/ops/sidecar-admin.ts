/**
 * The admin listener of a sidecar, whichever process its requests are served in.
 *
 * @module
 */
import type { Config } from '../config/schema.ts'
import { VERSION } from '../version.ts'
import {
  type AdminListener,
  type Awaitable,
  createAdminListener,
  type Exposition,
  type ReadyCheck,
} from './admin.ts'
import type { MetricFamily } from './status/metric-families.ts'
import { createStatusReporter } from './status/report.ts'
import type { StatusKey } from './status/status.ts'

/** What is told of a sidecar: known in this process, or asked of those that serve. */
export interface AdminSources {
  /** Every condition of readiness. */
  readonly ready: () => Awaitable<readonly ReadyCheck[]>
  readonly keys: () => Awaitable<readonly StatusKey[]>
  /** The public keys, as a JWK Set (RFC 7517). */
  readonly jwks: () => Awaitable<unknown>
  readonly exposition: Exposition
  /** The metrics that the status page is made of. */
  readonly statusMetrics: () => Promise<readonly MetricFamily[]>
  readonly rssBytes: () => Awaitable<number>
}

/** What it works with besides. */
export interface SidecarAdminOptions {
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly onFault: (error: Error) => void
  /** How many processes serve, each with a cache of its own; default 1. */
  readonly processes?: number
}

/** Makes the admin listener. */
export function createSidecarAdmin(
  config: Config,
  { statusMetrics, keys, rssBytes, ...sources }: AdminSources,
  { now, onFault, processes = 1 }: SidecarAdminOptions,
): AdminListener {
  return createAdminListener({
    ...config.admin,
    ...sources,
    status: createStatusReporter({
      version: VERSION,
      source: statusMetrics,
      ready: sources.ready,
      keys,
      upstreams: config.upstreams,
      credentials: config.credentials,
      cacheCapacity: config.cache.maxTokens * processes,
      rssBytes,
      now,
      onFault,
    }),
    onFault,
  })
}
