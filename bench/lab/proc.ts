/**
 * What a process costs, from `/proc`: its CPU time and its memory, threads and child processes included.
 *
 * @module
 */
import { readdirSync, readFileSync } from 'node:fs'

/** One tick of `/proc/PID/stat`: Linux tells programs 100 a second on every architecture we run on. */
const MICROSECONDS_PER_TICK = 10_000

/** CPU time so far, user and system, in microseconds. */
export function cpuMicroseconds(pid: number): number {
  return [pid, ...childrenOf(pid)].map(ticks).reduce(sum, 0) * MICROSECONDS_PER_TICK
}

/** Resident memory in megabytes (of 1,000,000 bytes). */
export function residentMegabytes(pid: number): number {
  return [pid, ...childrenOf(pid)].map(resident).reduce(sum, 0)
}

const sum = (total: number, value: number) => total + value

/** Fields 14 and 15; the command's name before them may hold anything, a closing parenthesis too. */
function ticks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

function resident(pid: number): number {
  const kilobytes = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return (Number(kilobytes) * 1024) / 1e6
}

function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
  )
}
