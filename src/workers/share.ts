/**
 * A worker's share of what is bounded for the whole sidecar.
 *
 * @module
 */
import type { Config } from '../config/schema.ts'

/** The settings of one of so many workers: together they open no more sockets than one process would. */
export function shareOf(config: Config, workers: number): Config {
  const part = (whole: number): number => Math.ceil(whole / workers)
  const { limits } = config
  return {
    ...config,
    limits: {
      ...limits,
      connections: part(limits.connections),
      upstreamConnections: part(limits.upstreamConnections),
      upstreamQueue: part(limits.upstreamQueue),
    },
  }
}
