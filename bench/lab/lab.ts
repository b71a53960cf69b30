/**
 * A place for processes and files that are gone when the run is: at its end, when it fails, and on Ctrl-C.
 *
 * @module
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Core, onCore } from './pin.ts'

/** A running process. */
export interface Running {
  readonly pid: number
  /** Kills it and waits until it is gone. */
  stop(): Promise<void>
}

/** Where a run works. */
export interface Lab {
  /** A new directory for whatever the run writes. */
  readonly directory: string
  /** Starts a process on a core; its stdout is thrown away. */
  run(core: Core, command: string, args: readonly string[], env?: Readonly<Record<string, string>>): Running
  /** Runs one of the suite's own programs on the load's core; resolves with the JSON it printed. */
  ask(script: string, options: object): Promise<unknown>
  /** Ends every process and removes the directory. */
  close(): void
}

/** What lets Node run TypeScript. */
const LOADER = `--import=${import.meta.resolve('ts-blank-space/register')}`

/** Opens a lab that closes when this process ends, however it does (but for SIGKILL). */
export function openLab(): Lab {
  const directory = mkdtempSync(join(tmpdir(), 'bench-'))
  const children = new Set<ChildProcess>()

  function start(
    core: Core,
    command: string,
    args: readonly string[],
    env: object,
    stdout: 'ignore' | 'pipe',
  ) {
    const child = spawn(...onCore(core, command, args), {
      stdio: ['ignore', stdout, 'inherit'],
      cwd: directory,
      env: { ...process.env, ...env },
    })
    children.add(child)
    child.once('close', () => children.delete(child))
    return child
  }

  function close(): void {
    for (const child of children) child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  }
  process.once('exit', close)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => process.exit(128 + constants.signals[signal]))
  }

  return {
    directory,
    run(core, command, args, env = {}) {
      const child = start(core, command, args, env, 'ignore')
      const gone = once(child, 'close')
      let wanted = false
      child.once('exit', (code, signal) => {
        if (!wanted) console.error(`${command} ended by itself: ${signal ?? `exit code ${code}`}`)
      })
      return {
        pid: child.pid ?? 0,
        async stop() {
          wanted = true
          child.kill('SIGKILL')
          await gone
        },
      }
    },
    async ask(script, options) {
      const child = start(1, process.execPath, [LOADER, script, JSON.stringify(options)], {}, 'pipe')
      let output = ''
      child.stdout?.setEncoding('utf8').on('data', (text: string) => {
        output += text
      })
      const [code] = await once(child, 'close')
      if (code !== 0) throw new Error(`${script} ended with exit code ${code}`)
      return JSON.parse(output)
    },
    close,
  }
}
