/**
 * Pinning to a core, where the machine has a way and a second core.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

const canPin = availableParallelism() > 1 && spawnSync('taskset', ['-c', '1', 'true']).status === 0

/** A command and its arguments, pinned to a core. */
export function onCore(core: 0 | 1, command: string, args: readonly string[]): [string, string[]] {
  return canPin ? ['taskset', ['-c', String(core), command, ...args]] : [command, [...args]]
}

/** Whether a program is on the path. */
export function isInstalled(program: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status === 0
}
