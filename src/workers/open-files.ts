/**
 * Keeps the limits of connections of one process within its open files (`ulimit -n`): a process that has
 * none left accepts no client, reaches no upstream and reads no keys.
 */
import { readFileSync } from 'node:fs'
import type { Logger } from '../base/log.ts'
import type { Config } from '../config/config.ts'

/** For the admin listener (probes, scrapes), key sets, files that are loaded, and Node itself. */
const RESERVED_FILES = 64

/**
 * Returns the settings with limits that fit, and warns if that is less than they allow.
 * @param config - with the limits of one process
 * @param openFiles - that one process may have
 */
export function withinOpenFiles(config: Config, openFiles: number, log: Pick<Logger, 'warn'>): Config {
  const poolSize = config.credentials.postgres?.poolSize ?? 0
  const free = openFiles - RESERVED_FILES - poolSize
  const upstreams = Math.max(1, config.upstreams.length)
  const needed = config.limits.connections + upstreams * config.limits.upstreamConnections
  if (needed <= free) {
    return config
  }
  const fairUpstreamConnections = Math.max(1, Math.floor(free / 2 / upstreams))
  const upstreamConnections = Math.min(config.limits.upstreamConnections, fairUpstreamConnections)
  const left = Math.max(1, free - upstreams * upstreamConnections)
  const connections = Math.min(config.limits.connections, left)
  log.warn(
    { openFiles, needed: needed + RESERVED_FILES + poolSize, connections, upstreamConnections },
    'the limit of open files is low (ulimit -n): each process takes fewer connections than limits allows',
  )
  return { ...config, limits: { ...config.limits, connections, upstreamConnections } }
}

/** The soft limit of this process, which Node raises to the hard one. Infinity where it is not known. */
export function openFilesLimit(): number {
  try {
    const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
  } catch {
    return Number.POSITIVE_INFINITY // no Linux
  }
}
