/**
 * `demo`: the sidecar in front of a small storage API, ready to be tried.
 *
 * In: the ports to listen on. Out: both run in this process until a stop is requested, everything they keep is
 * in `.sidecar/` under the working directory, and once requests are served, lines to paste are on stdout.
 *
 * @module
 */
import { type AddressInfo, createServer } from 'node:net'
import { resolve } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import { formatProblems, loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { guide } from '../demo/guide.ts'
import { startObjectStore } from '../demo/start-object-store.ts'
import { prepareWorkspace } from '../demo/workspace.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'

/** A sidecar, as far as the demo needs one. */
export interface DemoApp {
  /** Resolves once both listeners serve. */
  start(): Promise<{ readonly data: AddressInfo; readonly admin: AddressInfo }>
  stop(): Promise<unknown>
}

/** What the command needs besides its arguments. */
export interface DemoDependencies {
  readonly createApp: (config: Config) => Promise<DemoApp>
  /** Resolves when the demo is to end: Ctrl-C, SIGTERM. Called before anything listens. */
  readonly stopRequested: () => Promise<unknown>
  /** Where everything is kept; `.sidecar` in the working directory without it. */
  readonly directory?: string
  /** The clock, in epoch milliseconds; the system's without it. */
  readonly now?: () => number
}

interface DemoOptions {
  readonly port: number
  readonly adminPort: number
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar demo
  storage-auth-sidecar demo --port 9080 --admin-port 9081
`

/** Makes the command. */
export function demoCommand(io: CommandIo, deps: DemoDependencies): Command {
  return new Command('demo')
    .description('run the sidecar in front of an embedded storage API, and print curl lines that try it')
    .option('--port <port>', 'data port on 127.0.0.1; 0: any free one', parsePort, 8080)
    .option('--admin-port <port>', 'admin port on 127.0.0.1; 0: any free one', parsePort, 8081)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
    })
    .addHelpText('after', EXAMPLES)
    .action((options: DemoOptions) => runDemo(io, deps, options))
}

async function runDemo(io: CommandIo, deps: DemoDependencies, options: DemoOptions): Promise<void> {
  const { port, adminPort } = options
  // Before anything is written: a demo that runs already, in this directory, must not lose its key.
  await expectFree(port, '--port')
  await expectFree(adminPort, '--admin-port')
  const stop = deps.stopRequested()
  const { now = Date.now } = deps
  const directory = resolve(deps.directory ?? '.sidecar')
  const storage = await startObjectStore({
    directory: resolve(directory, 'objects'),
    now,
    onFault: (fault) => io.stderr.write(`storage API: ${fault}\n`),
  })
  try {
    const upstreamUrl = `http://${storage.address}:${storage.port}`
    const workspace = await prepareWorkspace({ directory, port, adminPort, upstreamUrl, now })
    // The demo is what its directory says, whatever SIDECAR_ variables are set.
    const loaded = loadConfig({ file: workspace.configFile, env: {}, flags: {} })
    if (!loaded.ok) throw new UsageFailure(formatProblems(loaded.problems))
    const app = await deps.createApp(loaded.config)
    const { data, admin } = await app.start()
    io.stdout.write(guide({ data, admin, ...workspace }))
    await stop
    await app.stop()
  } finally {
    await storage.close()
  }
}

/** Fails with one clear line when a port cannot be listened on. */
async function expectFree(port: number, flag: string): Promise<void> {
  const probe = createServer()
  await new Promise<void>((resolve, reject) => {
    probe.once('error', reject).listen(port, '127.0.0.1', resolve)
  }).catch((fault: NodeJS.ErrnoException) => {
    const why = fault.code === 'EADDRINUSE' ? 'is in use' : `cannot be listened on (${fault.code})`
    throw new CommandFailure(`port ${port} ${why}; choose another with ${flag} (0: any free one)`)
  })
  await new Promise((resolve) => probe.close(resolve))
}

function parsePort(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65535) {
    throw new InvalidArgumentError('It must be a number from 0 to 65535.')
  }
  return Number(text)
}
