/**
 * Processes, ports, CPU time and memory of a benchmark run.
 * Everything that a run starts or writes ends with it: at its end, when it fails, and on Ctrl-C.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Core 0 runs the proxy under test and nothing else; core 1 runs load and upstream. */
export type Core = 0 | 1

export interface Running {
  /** The processes whose CPU time and memory are measured, without their children. */
  readonly pids: readonly number[]
  stop(): Promise<void>
}

export interface Lab {
  readonly directory: string
  /** Starts a process on a core; its stdout is discarded. */
  run(core: Core, command: string, args: readonly string[], env?: Readonly<Record<string, string>>): Running
  /**
   * Runs one of the benchmark's own programs on core 1 and parses the JSON that it prints.
   * `prefix`: words before its command.
   */
  ask(script: string, options: object, prefix?: readonly string[]): Promise<unknown>
  /** Starts one of the benchmark's own programs on core 1, which it leaves at once to others. */
  runYielding(script: string, options: object): Running
}

const TYPESCRIPT = `--import=${import.meta.resolve('../scripts/strip-types.mjs')}`
/** Counted before this process is pinned itself: from then on, it has one. */
const LAST_CORE = availableParallelism() - 1

/** The words before a command that pin it to a core, or to the only one. */
export const pinned = (core: Core): [string, ...string[]] => [
  'taskset',
  '-c',
  String(Math.min(core, LAST_CORE)),
]

/**
 * The words before a command whose waits for core 1 would count as those of the proxy.
 * Without the right to raise its priority, `nice` says so and runs it all the same.
 */
export const PREFERRED: readonly string[] = ['nice', '-n', '-10']
/**
 * The words before a command that leaves core 1 at once to others that have work.
 * Beside a command of ordinary scheduling, these would wait for some 3 ms whatever their priority is
 * (since Linux 6.6).
 */
const YIELDING: readonly string[] = ['chrt', '--idle', '0']

export function openLab(): Lab {
  const directory = mkdtempSync(join(tmpdir(), 'bench-'))
  const children = new Set<ChildProcess>()
  spawnSync('taskset', ['-acp', ...pinned(1).slice(2), String(process.pid)])

  function start(
    core: Core,
    command: string,
    args: readonly string[],
    env: object,
    stdout: 'ignore' | 'pipe',
  ) {
    const [taskset, ...rest] = pinned(core)
    const options = { cwd: directory, env: { ...process.env, ...env } }
    const child = spawn(taskset, [...rest, command, ...args], {
      ...options,
      stdio: ['ignore', stdout, 'inherit'],
    })
    children.add(child)
    child.once('close', () => children.delete(child))
    return child
  }

  process.once('exit', () => {
    for (const child of children) {
      child.kill('SIGKILL')
    }
    rmSync(directory, { recursive: true, force: true })
  })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => process.exit(128 + constants.signals[signal]))
  }

  const commandOf = (prefix: readonly string[], script: string, options: object): [string, string[]] => {
    const program = [process.execPath, TYPESCRIPT, join(import.meta.dirname, script)]
    const [command = '', ...args] = [...prefix, ...program, JSON.stringify(options)]
    return [command, args]
  }

  const lab: Lab = {
    directory,
    run(core, command, args, env = {}) {
      const child = start(core, command, args, env, 'ignore')
      const closed = once(child, 'close')
      const onExit = (code: number | null) => console.error(`${command} ended by itself: exit code ${code}`)
      child.once('exit', onExit)
      return {
        pids: [child.pid ?? 0],
        async stop() {
          child.off('exit', onExit)
          child.kill('SIGKILL')
          await closed
        },
      }
    },
    runYielding(script, options) {
      const [command, args] = commandOf(YIELDING, script, options)
      return lab.run(1, command, args)
    },
    async ask(script, options, prefix = []) {
      const [command, args] = commandOf(prefix, script, options)
      const child = start(1, command, args, {}, 'pipe')
      let output = ''
      child.stdout?.setEncoding('utf8').on('data', (text: string) => {
        output += text
      })
      const [code] = await once(child, 'close')
      if (code !== 0) {
        throw new Error(`${script} ended with exit code ${code}`)
      }
      return JSON.parse(output)
    },
  }
  return lab
}

/** Resolves once a port answers; rejects after ten seconds. */
export async function listening(port: number): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    const answered = await ask(port, '/').catch(() => undefined)
    if (answered !== undefined) {
      return
    }
    await sleep(20)
  }
  throw new Error(`no process answers on port ${port}`)
}

/** Sends one GET on a connection of its own. Rejects when there is no answer. */
export async function ask(port: number, path: string, token?: string) {
  const headers = { connection: 'close', ...(token !== undefined && { authorization: `Bearer ${token}` }) }
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
  return { status: response.status, body: await response.text() }
}

/** One tick of `/proc/PID/stat`: 100 a second for user space on every architecture of Linux. */
const MICROSECONDS_PER_TICK = 10_000

/** CPU time so far, user and system, all threads and child processes, in microseconds. */
export function cpuMicroseconds({ pids }: Running): number {
  return sum(withChildren(pids).map(ticks)) * MICROSECONDS_PER_TICK
}

/** Resident memory with that of child processes, in megabytes of 1,000,000 bytes. */
export function residentMegabytes({ pids }: Running): number {
  return megabytes(pids, /VmRSS:\s+(\d+)/)
}

/** The most that it has been since the start: of several processes, the sum of what each had at the most. */
export function peakMegabytes({ pids }: Running): number {
  return megabytes(pids, /VmHWM:\s+(\d+)/)
}

/** @param line - of `/proc/PID/status`, with its kilobytes */
function megabytes(pids: readonly number[], line: RegExp): number {
  const kilobytes = (pid: number) => Number(line.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1])
  return (sum(withChildren(pids).map(kilobytes)) * 1024) / 1e6
}

/** Runs the work, and returns its result with the resident memory before it and the growth at the most. */
export async function withPeakMemory<T>(running: Running, work: () => Promise<T>) {
  const before = residentMegabytes(running)
  let peak = before
  const sampling = setInterval(() => {
    peak = Math.max(peak, residentMegabytes(running))
  }, 100)
  try {
    const result = await work()
    return { result, memory: { 'RSS before, MB': before, 'growth MB': peak - before } }
  } finally {
    clearInterval(sampling)
  }
}

/** Fields 14 and 15; the command name before them may contain a closing parenthesis. */
function ticks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

function withChildren(pids: readonly number[]): number[] {
  const childrenOf = (pid: number) =>
    readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    )
  return pids.flatMap((pid) => [pid, ...childrenOf(pid)])
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

/** The value below which the share `q` of the values lies; `NaN` for none. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN
}

export const median = (values: readonly number[]): number => quantile(values, 0.5)
