/**
 * The sidecar as a process of its own, and what can be seen of it from outside.
 *
 * @module
 */
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const LOADER = import.meta.resolve('ts-blank-space/register')
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url))

/** A sidecar that runs. */
export interface SidecarProcess {
  readonly pid: number
  readonly port: number
  readonly adminPort: number
  /** How it ended, once it has. */
  readonly ended: string | undefined
  /** Log lines of the level `error` or worse, and whatever was written to stderr. */
  readonly complaints: string[]
  /** Open descriptors. */
  descriptors(): number
  /** Resident memory, in bytes. */
  residentBytes(): number
  /** The series at `/metrics` by name and labels. */
  metrics(): Promise<ReadonlyMap<string, number>>
  /** Tells it to stop and waits; kills it when it does not. Returns its exit code. */
  stop(): Promise<number | null>
}

/** Starts the sidecar from the sources, on free ports of the loopback interface; flags are written without dashes. */
export async function startSidecarProcess(
  flags: Readonly<Record<string, string>>,
  nodeArgs: readonly string[] = [],
): Promise<SidecarProcess> {
  const all = {
    'listen-host': '127.0.0.1',
    'listen-port': '0',
    'admin-host': '127.0.0.1',
    'admin-port': '0',
    ...flags,
  }
  const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value])
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SIDECAR_')))
  const child = spawn(process.execPath, [...nodeArgs, `--import=${LOADER}`, MAIN, 'serve', ...args], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const complaints: string[] = []
  const ports = new Map<string, number>()
  let ended: string | undefined
  const kill = () => child.kill('SIGKILL')
  process.once('exit', kill) // whatever ends this process ends its child, too
  const exited = new Promise<number | null>((resolve) => {
    child.once('exit', (code, signal) => {
      ended = signal ?? `exit code ${code}`
      process.removeListener('exit', kill)
      resolve(code)
    })
  })
  createInterface({ input: child.stderr }).on('line', (line) => complaints.push(line))
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { level, msg, listener, port }: LogLine = JSON.parse(line)
      if (isComplaint(level)) complaints.push(line)
      if (msg === 'listening') ports.set(String(listener), Number(port))
      if (ports.size === 2) resolve()
    })
    void exited.then(() => reject(new Error(`the sidecar did not start: ${ended}; ${complaints.join('\n')}`)))
  })
  const pid = Number(child.pid)
  const adminPort = Number(ports.get('admin'))
  return {
    pid,
    port: Number(ports.get('data')),
    adminPort,
    get ended() {
      return ended
    },
    complaints,
    descriptors: () => readdirSync(`/proc/${pid}/fd`).length,
    residentBytes() {
      const kilobytes = /^VmRSS:\s*([0-9]+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
      return Number(kilobytes) * 1024
    },
    async metrics() {
      const response = await fetch(`http://127.0.0.1:${adminPort}/metrics`, {
        headers: { connection: 'close' },
      })
      return parseMetrics(await response.text())
    },
    async stop() {
      child.kill('SIGINT')
      const timer = setTimeout(kill, 5000)
      const code = await exited
      clearTimeout(timer)
      return code
    },
  }
}

interface LogLine {
  readonly level?: unknown
  readonly msg?: unknown
  readonly listener?: unknown
  readonly port?: unknown
}

function isComplaint(level: unknown): boolean {
  return typeof level === 'number' ? level >= 50 : level === 'error' || level === 'fatal'
}

/** The samples of a text in the exposition format of Prometheus, by name and labels. */
export function parseMetrics(text: string): Map<string, number> {
  const samples = new Map<string, number>()
  for (const line of text.split('\n')) {
    const space = line.lastIndexOf(' ')
    if (line !== '' && !line.startsWith('#')) samples.set(line.slice(0, space), Number(line.slice(space + 1)))
  }
  return samples
}
