/**
 * Numbers from `/proc`.
 *
 * @module
 */
import { readdirSync, readFileSync } from 'node:fs'

/** What one tick of `/proc/PID/stat` is; Linux has used 100 a second for programs on every architecture we run on. */
const MICROSECONDS_PER_TICK = 10_000

/** CPU time of a process and its children so far, user and system, in microseconds. */
export function cpuMicroseconds(pid: number): number {
  return [pid, ...childrenOf(pid)].map(ticks).reduce((sum, value) => sum + value, 0) * MICROSECONDS_PER_TICK
}

function ticks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
  )
}

/** Resident memory of a process, in megabytes. */
export function residentMegabytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024
}

/** The middle one. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
