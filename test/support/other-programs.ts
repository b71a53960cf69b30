/** Programs beside the sidecar, as far as a machine has them. */
import { type ChildProcess, type SpawnOptionsWithoutStdio, spawn, spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** Why a test is skipped: there is no such program, or this command of it fails. False where it runs. */
export function without(program: string, ...args: readonly string[]): string | false {
  const look = args.length === 0 ? ['sh', '-c', 'command -v "$0"', program] : [program, ...args]
  const isThere = spawnSync('env', look).status === 0
  return isThere ? false : `there is no ${[program, ...args].join(' ')}`
}

/** Collects what a process writes, and ends it by the signal when the test ends. */
export function watchProcess(
  t: Pick<Test, 'teardown'>,
  child: ChildProcess,
  signal: NodeJS.Signals = 'SIGKILL',
) {
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
  t.teardown(async () => {
    child.kill(signal)
    await ended
  })
  return {
    stdout: () => stdout,
    stderr: () => stderr,
    /** Resolves when it has ended and its output is complete. */
    ended,
  }
}

interface RunOptions extends Pick<SpawnOptionsWithoutStdio, 'cwd' | 'env'> {
  readonly stdin?: string
}

/** Runs a program to its end; not synchronously, because a sidecar may be in this process. */
export async function runToEnd(
  t: Pick<Test, 'teardown'>,
  command: string,
  args: readonly string[],
  { cwd, env, stdin = '' }: RunOptions = {},
) {
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env } })
  child.stdin.end(stdin)
  const { ended, stdout, stderr } = watchProcess(t, child)
  const { code } = await ended
  return { code, output: stdout() + stderr() }
}

/**
 * Compiles Go packages, and fetches nothing.
 * The cache stays, so that only the first run compiles the standard library.
 */
export function buildGo(cwd: string, output: string, packages: string) {
  const cache = join(tmpdir(), 'storage-auth-sidecar-go-cache')
  const offline = { GOPROXY: 'off', GOTOOLCHAIN: 'local', GOFLAGS: '-buildvcs=false', CGO_ENABLED: '0' }
  const env = { ...process.env, ...offline, GOCACHE: cache }
  return spawnSync('go', ['build', '-o', output, packages], { cwd, env, encoding: 'utf8', timeout: 600_000 })
}
