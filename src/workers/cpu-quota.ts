/**
 * How many processes the CPU quota of the own cgroup, or of one above it, lets run (cgroup v2 `cpu.max`, v1
 * `cpu.cfs_quota_us`). `os.availableParallelism` of Node 20 and 22 knows the cores alone.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'

type ReadText = (path: string) => string | undefined

export function availableProcesses(read: ReadText = readText, cores = availableParallelism()): number {
  // Such as `0::/system.slice/a.service` (v2) or `4:cpu,cpuacct:/docker/1f2e` (v1); `/` in a container.
  const lines = (read('/proc/self/cgroup') ?? '').split('\n').map((line) => line.split(':'))
  const quotas = lines.flatMap(([, controllers = '', path = '/']) => {
    if (controllers === '') return upwards(path).map((at) => quotaV2(read, join('/sys/fs/cgroup', at)))
    if (!controllers.split(',').includes('cpu')) return []
    return upwards(path).map((at) => quotaV1(read, join('/sys/fs/cgroup/cpu', at)))
  })
  return Math.max(1, Math.floor(Math.min(cores, ...quotas)))
}

/** A path and those above it. */
function upwards(path: string): string[] {
  return path === '/' || path === '.' ? ['/'] : [path, ...upwards(dirname(path))]
}

const quotaV2 = (read: ReadText, directory: string) =>
  ratio(...(read(join(directory, 'cpu.max')) ?? '').split(' '))

const quotaV1 = (read: ReadText, directory: string) =>
  ratio(read(join(directory, 'cpu.cfs_quota_us')), read(join(directory, 'cpu.cfs_period_us')))

/** Infinite without a quota: `max` in v2, -1 in v1. */
function ratio(quota = '', period = ''): number {
  const cpus = Number.parseInt(quota, 10) / Number.parseInt(period, 10)
  return cpus > 0 ? cpus : Number.POSITIVE_INFINITY
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
