/**
 * Runs a command of somebody else's, without what tap adds to the environment of every process to measure coverage.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'

/** Runs it to its end; waits at most two minutes. */
export function run(
  command: string,
  args: readonly string[],
  { cwd, env = {} }: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): { readonly code: number | null; readonly stdout: string; readonly stderr: string } {
  const { status, stdout, stderr } = spawnSync('env', ['-u', 'NODE_OPTIONS', command, ...args], {
    encoding: 'utf8',
    timeout: 120_000,
    env: { ...process.env, ...env },
    ...(cwd === undefined ? {} : { cwd }),
  })
  return { code: status, stdout, stderr }
}
