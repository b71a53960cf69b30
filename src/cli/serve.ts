/**
 * `serve`: runs the sidecar until a signal stops it. SIGTERM drains with a lame duck, SIGINT without one; a second
 * signal stops at once. The exit code is 0, or 1 if a request was aborted.
 */
import type { Command } from 'commander'
import type { App } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { LoadedConfig } from '../config/load.ts'
import { formatProblems } from '../config/problem.ts'
import { StoppedWhileStarting } from '../ops/life-cycle.ts'
import { CommandFailure, type CommandIo, createCommand, UsageFailure } from './command-io.ts'
import { addSettingFlags, asUsage, checkAll, loadSettings, type ParsedOptions } from './config.ts'
import type { StopSignal } from './signals.ts'

export interface ServeDependencies {
  readonly createApp: (config: Config) => Promise<App>
  /** Resolves with the first signal that asks to stop. Called before anything listens. */
  readonly stopRequested: () => Promise<StopSignal>
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar serve --config /etc/storage-auth-sidecar/sidecar.yaml
  SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar serve --keys-directory ./keys \\
    --credentials-file ./credentials.yaml`

export function serveCommand(io: CommandIo, deps: ServeDependencies): Command {
  return addSettingFlags(createCommand('serve', 'run the sidecar', io))
    .addHelpText('after', EXAMPLES)
    .action(async (options: ParsedOptions) => {
      const loaded = loadSettings(options, io)
      if (!loaded.ok) throw new UsageFailure(formatProblems((await checkAll(loaded)).problems))
      await serve(loaded, deps)
    })
}

async function serve(loaded: LoadedConfig, deps: ServeDependencies): Promise<void> {
  let isStopping = false
  const stop = deps.stopRequested().then((signal) => {
    isStopping = true
    return signal
  })
  const { config } = loaded
  try {
    const app = await deps.createApp(config)
    // A process that is stopped while it starts does not begin to listen.
    if (!isStopping) await Promise.race([app.start().catch((error) => rethrowFault(error, config)), stop])
    const { cut } = await app.stop({ lameDuck: (await stop) === 'SIGTERM' })
    if (cut > 0) throw new CommandFailure(`requests aborted at the end of shutdown.deadlineSeconds: ${cut}`)
  } catch (error) {
    throw asUsage(error, loaded)
  }
}

/** Node's error of a listener; `hostname` replaces address and port when the name has no address. */
type ListenError = NodeJS.ErrnoException & { readonly [Name in 'address' | 'hostname' | 'port']?: unknown }

function rethrowFault(error: ListenError, { admin }: Config): void {
  if (error instanceof StoppedWhileStarting) return
  const { code, syscall, address, hostname, port, message } = error
  if (syscall === undefined) throw error
  if (syscall.startsWith('spawn')) throw new CommandFailure(`cannot start a worker: ${message}`)
  if (code === 'EADDRINUSE') {
    const setting = port === admin.port ? 'admin.port' : 'listen.port'
    throw new CommandFailure(`port ${port} is in use (${setting})`)
  }
  const where = [address ?? hostname, port].filter((part) => part !== undefined).join(' port ')
  throw new CommandFailure(`cannot listen on ${where}: ${code}`)
}
