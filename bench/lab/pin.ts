/**
 * Pinning to a core, where the machine has a way and a second core: the process under test gets the first one to
 * itself, load and upstream share the second.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

/** 0: what is measured. 1: everything else. 'both': what is measured, where it can use more than one. */
export type Core = 0 | 1 | 'both'

/** Whether processes get a core of their own here. */
export const canPin = availableParallelism() > 1 && spawnSync('taskset', ['-c', '1', 'true']).status === 0

/** A command and its arguments, pinned to a core. `taskset` replaces itself, so the process id is the command's. */
export function onCore(core: Core, command: string, args: readonly string[]): [string, string[]] {
  return canPin
    ? ['taskset', ['-c', core === 'both' ? '0,1' : String(core), command, ...args]]
    : [command, [...args]]
}
