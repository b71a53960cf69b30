/**
 * `serve`: runs the sidecar until it is told to stop.
 *
 * SIGTERM drains with a lame duck, SIGINT without one; a second signal stops at once. The exit code is 0, or 1 if
 * a request had to be cut.
 *
 * @module
 */
import { Command } from 'commander'
import { type App, UnusableFiles } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'
import { addSettingFlags, type ParsedOptions, settingsFromCommand } from './config.ts'

/** A request to stop: which signal it was. */
export type StopSignal = 'SIGTERM' | 'SIGINT'

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
  return command
    .addHelpText('after', EXAMPLES)
    .action((options: ParsedOptions) => serve(settingsFromCommand(options, io), deps))
}

async function serve(config: Config, deps: ServeDependencies): Promise<void> {
  const stop = deps.stopRequested()
  const app = await deps.createApp(config).catch(explainFiles)
  await app.start().catch(explainListening)
  const { cut } = await app.stop({ lameDuck: (await stop) === 'SIGTERM' })
  if (cut > 0) throw new CommandFailure(`${cut} requests were cut`)
}

/** Keys, credentials or certificates that cannot be used are a matter of configuration: exit code 2. */
export function explainFiles(error: unknown): never {
  if (error instanceof UnusableFiles) throw new UsageFailure(error.message)
  throw error
}

function explainListening(error: unknown): never {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  const where = error instanceof Error && 'port' in error ? `port ${error.port}` : 'the address'
  if (code === 'EADDRINUSE') throw new CommandFailure(`${where} is in use`)
  if (code !== undefined) throw new CommandFailure(`cannot listen on ${where}: ${code}`)
  throw error
}
