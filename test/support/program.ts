/**
 * The built program as a process of its own.
 * `npm test` builds it; coverage is measured in the tests' own process only.
 */
import { type SpawnOptions, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { makeCredentialsFile } from './credentials.ts'
import { eventually } from './eventually.ts'
import { makeKeyDirectory } from './keys.ts'
import { watchProcess } from './other-programs.ts'
import { mintToken } from './tokens.ts'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))

/** How the program is to be run. */
export interface ProgramOptions {
  /** Laid over this process's environment without its `SIDECAR_` variables; `undefined` removes one. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
  /** A command that runs the program, with its arguments. */
  readonly runner?: readonly string[]
  /** Flags of Node itself. */
  readonly nodeArgs?: readonly string[]
  readonly stdio?: SpawnOptions['stdio']
}

export type Program = ReturnType<typeof startProgram>

/** Starts the program; it is killed at the end of the test. */
export function startProgram(
  t: Pick<Test, 'teardown'>,
  args: readonly string[],
  { env = {}, cwd, runner = [], nodeArgs = [], stdio = ['ignore', 'pipe', 'pipe'] }: ProgramOptions = {},
) {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('SIDECAR_'))
  // Without the loaders that tap adds to every process that a test starts.
  const plain = ['-u', 'NODE_OPTIONS', ...runner, process.execPath]
  const child = spawn('/usr/bin/env', [...plain, ...nodeArgs, MAIN, ...args], {
    env: { ...Object.fromEntries(inherited), ...env },
    stdio,
    ...(cwd === undefined ? {} : { cwd }),
  })
  const { stdout, stderr, ended } = watchProcess(t, child)
  return {
    child,
    pid: child.pid ?? 0,
    stdout,
    stderr,
    /** The lines of the log so far. Throws when one is no JSON object. */
    log: () => stdout().split('\n').slice(0, -1).map(parseLine),
    /** Waits until something holds. */
    until: (holds: () => unknown, what: string) =>
      eventually(holds, () => `${what}; ${stdout().slice(-2000)}\n${stderr().slice(-2000)}`),
    /** Resolves when it has ended and its output is complete. */
    ended,
  }
}

/** Runs a command to its end. */
export async function runProgram(
  t: Pick<Test, 'teardown'>,
  args: readonly string[],
  options: ProgramOptions & { readonly stdin?: string } = {},
) {
  const { stdin } = options
  const program = startProgram(t, args, {
    ...options,
    ...(stdin === undefined ? {} : { stdio: ['pipe', 'pipe', 'pipe'] }),
  })
  if (stdin !== undefined) {
    program.child.stdin?.end(stdin)
  }
  const { code } = await program.ended
  return { code, stdout: program.stdout(), stderr: program.stderr() }
}

/** Runs `serve` on free ports and waits until it serves; its log must be on its stdout. */
export async function serve(
  t: Pick<Test, 'teardown'>,
  flags: Readonly<Record<string, string>>,
  options: ProgramOptions = {},
) {
  const program = startProgram(t, ['serve', ...serveArgs(flags)], options)
  await Promise.race([
    program.until(() => program.log().filter(({ msg }) => msg === 'listening').length === 2, 'listening'),
    program.ended.then(({ code }) => {
      throw new Error(`serve ended with ${code}: ${program.stderr()}`)
    }),
  ])
  const portOf = (listener: string) =>
    Number(program.log().find((line) => line['listener'] === listener)?.['port'])
  return { ...program, port: portOf('data'), adminPort: portOf('admin') }
}

/**
 * The arguments of `serve` on free ports of the loopback interface; flags are written without their dashes.
 */
export function serveArgs(flags: Readonly<Record<string, string>>): string[] {
  const all = { 'listen-host': '127.0.0.1', 'listen-port': '0', 'admin-host': '127.0.0.1', 'admin-port': '0' }
  return Object.entries({ ...all, ...flags }).flatMap(([name, value]) => [`--${name}`, value])
}

/** Makes a key and a credential; returns the flags that name their files, the login, and a good token. */
export async function prepareFiles(t: Pick<Test, 'teardown' | 'testdir'>) {
  const key = await makeKeyDirectory(t)
  const { file, logins } = await makeCredentialsFile(t)
  const [login = { accountId: '', accessKey: '', secret: '' }] = logins
  const { accountId: sub, accessKey: client_id } = login
  return {
    files: { 'keys-directory': key.directory, 'credentials-file': file },
    login,
    token: await mintToken({ key, claims: { sub, client_id } }),
  }
}

function parseLine(line: string): Record<string, unknown> {
  const parsed: unknown = JSON.parse(line)
  if (typeof parsed !== 'object' || parsed === null) {
    throw new Error(`no JSON object: ${line}`)
  }
  return { ...parsed }
}
