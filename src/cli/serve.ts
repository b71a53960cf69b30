/**
 * `serve`: runs the sidecar until it is told to stop.
 *
 * SIGTERM drains with a lame duck, SIGINT without one; a second signal stops at once. The exit code is 0, or 1 if
 * a request had to be cut.
 *
 * @module
 */
import { Command } from 'commander'
import type { App } from '../app.ts'
import { formatProblems, type NotLoaded } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { StoppedWhileStarting } from '../ops/life-cycle.ts'
import { fileProblems } from '../reload/sources.ts'
import { UnusableTrust } from '../reload/trust.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'
import { addSettingFlags, loadSettings, type ParsedOptions } from './config.ts'
import type { StopSignal } from './signals.ts'

/** What the command needs besides its arguments. */
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

/** Makes the command. */
export function serveCommand(io: CommandIo, deps: ServeDependencies): Command {
  const command = new Command('serve').description('run the sidecar')
  command.exitOverride().configureOutput({
    writeOut: (text) => io.stdout.write(text),
    writeErr: (text) => io.stderr.write(text),
  })
  addSettingFlags(command)
  return command.addHelpText('after', EXAMPLES).action(async (options: ParsedOptions) => {
    const loaded = loadSettings(options, io)
    if (!loaded.ok) throw new UsageFailure(await everyProblem(loaded))
    await serve(loaded.config, deps)
  })
}

/** The mistakes in the settings, and what is wrong with the files that they name all the same. */
async function everyProblem({ problems, files }: NotLoaded): Promise<string> {
  return formatProblems([...problems, ...(await fileProblems(files))])
}

async function serve(config: Config, deps: ServeDependencies): Promise<void> {
  let stopping = false
  const stop = deps.stopRequested().then((signal) => {
    stopping = true
    return signal
  })
  const app = await deps.createApp(config).catch(explainFiles)
  // Whoever is told to stop while it starts does not begin to listen.
  if (!stopping) await Promise.race([app.start().catch(explainStart), stop])
  const { cut } = await app.stop({ lameDuck: (await stop) === 'SIGTERM' })
  if (cut > 0) throw new CommandFailure(`requests cut at the end of shutdown.deadlineSeconds: ${cut}`)
}

/** Keys, credentials or certificates that cannot be used are a matter of configuration: exit code 2. */
function explainFiles(error: unknown): never {
  if (error instanceof UnusableTrust) throw new UsageFailure(error.message)
  throw error
}

/** Why it did not start. A port that cannot be had is the machine's matter: one line, exit code 1. */
function explainStart(error: unknown): void {
  if (error instanceof StoppedWhileStarting) return
  if (error instanceof UnusableTrust) explainFiles(error)
  if (!(error instanceof Error && 'code' in error && 'syscall' in error)) throw error
  const { code, address, hostname, port }: ListenError = error
  if (code === 'EADDRINUSE') throw new CommandFailure(`port ${port} is in use`)
  const where = [address ?? hostname, port].filter((part) => part !== undefined).join(' port ')
  throw new CommandFailure(`cannot listen on ${where}: ${code}`)
}

/** What Node tells of a listener that could not be made; `hostname` instead of the others when it has no address. */
interface ListenError {
  readonly code: unknown
  readonly address?: unknown
  readonly hostname?: unknown
  readonly port?: unknown
}
