/**
 * `demo`: the sidecar in front of a small storage API, in this process, until a signal stops it. Everything is kept in
 * `.sidecar/` under the working directory; once requests are served, lines to paste are printed.
 */
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { formatProblems, loadConfig } from '../config/load.ts'
import { startStorageApi } from '../demo/storage-api.ts'
import { guide, prepareWorkspace } from '../demo/workspace.ts'
import { CommandFailure, type CommandIo, createCommand, parsePort, UsageFailure } from './command-io.ts'
import type { ServeDependencies } from './serve.ts'

interface Ports {
  readonly port: number
  readonly adminPort: number
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar demo
  storage-auth-sidecar demo --port 9080 --admin-port 9081
`

export function demoCommand(io: CommandIo, deps: ServeDependencies): Command {
  const description = 'run the sidecar in front of an embedded storage API, and print curl lines that try it'
  return createCommand('demo', description, io)
    .option('--port <port>', 'data port on 127.0.0.1; 0: any free one', parsePort, 8080)
    .option('--admin-port <port>', 'admin port on 127.0.0.1; 0: any free one', parsePort, 8081)
    .addHelpText('after', EXAMPLES)
    .action((ports: Ports) => runDemo(io, deps, ports))
}

async function runDemo(io: CommandIo, deps: ServeDependencies, { port, adminPort }: Ports): Promise<void> {
  // Before anything is written: a demo that already runs in this directory must not lose its key.
  await expectFree(port, '--port')
  await expectFree(adminPort, '--admin-port')
  const stop = deps.stopRequested()
  const directory = resolve('.sidecar')
  const storage = await startStorageApi(join(directory, 'objects'), (fault) =>
    io.stderr.write(`storage API: ${fault}\n`),
  )
  try {
    const workspace = await prepareWorkspace(directory, { port, adminPort }, storage.url)
    // The environment does not count: its SIDECAR_ variables are meant for another sidecar.
    const loaded = loadConfig({ file: workspace.configFile, env: {}, flags: {} })
    if (!loaded.ok) throw new UsageFailure(formatProblems(loaded.problems))
    const app = await deps.createApp(loaded.config)
    io.stdout.write(guide(workspace, await app.start()))
    await stop
    await app.stop()
  } finally {
    await storage.close()
  }
}

/** Fails with one line when a port cannot be listened on. */
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
