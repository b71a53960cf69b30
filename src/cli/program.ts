/**
 * The program: its commands, and how the process runs them. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
 */
import { availableParallelism } from 'node:os'
import { Command, CommanderError } from 'commander'
import type { App, ServingApp } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { createLog, type LogDestination, type Logger, openLogDestination } from '../ops/log.ts'
import { fileErrorCode, fileErrorReason } from '../reload/files.ts'
import { VERSION } from '../version.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'
import type { Signals } from './signals.ts'

export interface ProgramOptions {
  readonly signals: Signals
  /** The path of the file that a worker's process runs. */
  readonly entry: string
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar demo
  storage-auth-sidecar serve --config sidecar.yaml
  storage-auth-sidecar help credentials`

/** Runs the command of the command line, and ends the process. */
export async function runProgram(options: ProgramOptions): Promise<void> {
  let lost: string | undefined
  // A closed stdout must not end the process. A listener also puts a pipe in non-blocking mode, which the log needs.
  process.stdout.on('error', (error) => {
    // A reader that leaves has seen enough. Anything else, such as a full disk, may have lost a new secret.
    if (fileErrorCode(error) !== 'EPIPE') lost ??= fileErrorReason(error)
  })
  process.stderr.on('error', () => {})
  const destination = openLogDestination()
  const code = await run(commands(options, destination)).then(() => 0, exitCodeOf)
  await destination.close()
  // A pager may read slowly; a reader that disconnects ends the wait.
  if (process.stdout.writableLength > 0) await new Promise((resolve) => process.stdout.write('', resolve))
  if (lost !== undefined) process.stderr.write(`stdout cannot be written: ${lost}\n`)
  process.exit(lost !== undefined && code === 0 ? 1 : code)
}

async function run({ worker, ...visible }: Loaders): Promise<void> {
  const program = new Command('storage-auth-sidecar')
    .description('Issues, checks and caches Account API tokens in front of a storage service.')
    .version(VERSION)
    .exitOverride()
    .addHelpText('after', EXAMPLES)
  const asked = process.argv[2] ?? ''
  const known: Loaders = { ...visible, ...(worker && { worker }) }
  const load = Object.hasOwn(known, asked) ? [known[asked]] : Object.values(visible)
  for (const command of load) if (command !== undefined) program.addCommand(await command())
  await program.parseAsync()
}

/** Prints an error without its stack. */
function exitCodeOf(error: Error): number {
  // Commander has printed its own message; a request for help or the version is no error.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  process.stderr.write(`${error.message}\n`)
  return error instanceof UsageFailure || error instanceof CommandFailure ? error.exitCode : 1
}

/** Commands by name. Each is loaded on demand: the modules of all of them would cost a sidecar memory and start-up time. */
type Loaders = Readonly<Record<string, () => Promise<Command>>>

function commands({ signals, entry }: ProgramOptions, destination: LogDestination): Loaders {
  const { stdin, stdout, stderr, env } = process
  const io: CommandIo = { stdin, stdout, stderr, env }
  const stopRequested = () => signals.listen()

  const openLog = (level: string): Logger => {
    const log = createLog(level, destination)
    // The request of an uncaught error runs into its time limit; all others share nothing with it and go on.
    process.on('uncaughtException', (error) => log.fatal({ err: error }, 'uncaught'))
    return log
  }

  /** Serves requests in this process, alone or as one of several. */
  const serveHere = async (config: Config, log: Logger, worker = false): Promise<ServingApp> => {
    const { createApp } = await import('../app.ts')
    const logLinesDropped = () => destination.dropped
    const app = await createApp({ config, log, logLinesDropped, worker })
    signals.beforeExit = app.abort
    return app
  }

  const createWorkers = async (config: Config, log: Logger, count: number): Promise<App> =>
    (await import('../workers/primary.ts')).createPrimary({ config, log, count, entry })

  const createSidecar = async (config: Config, log: Logger): Promise<App> => {
    const count = config.workers === 'auto' ? availableParallelism() : config.workers
    const app = await (count === 1 ? serveHere(config, log) : createWorkers(config, log, count))
    signals.onHangUp(() => void app.reload())
    return app
  }

  return {
    serve: async () =>
      (await import('./serve.ts')).serveCommand(io, {
        createApp: (config) => createSidecar(config, openLog(config.log.level)),
        stopRequested,
      }),
    demo: async () =>
      (await import('./demo.ts')).demoCommand(io, {
        createApp: (config) => createSidecar(config, openLog('warn')),
        stopRequested,
      }),
    config: async () => (await import('./config.ts')).configCommand(io),
    keys: async () => (await import('./keys.ts')).keysCommand(io),
    credentials: async () => (await import('./credentials.ts')).credentialsCommand(io),
    check: async () => (await import('./check.ts')).checkCommand(io),
    token: async () => (await import('./token.ts')).tokenCommand(io),
    /** One process of several; in no help, as only `serve` starts it. */
    worker: async () =>
      new Command('worker').action(async () => {
        if (process.send === undefined)
          throw new UsageFailure('workers are started by serve, with the setting workers')
        const { runWorker } = await import('../workers/worker.ts')
        await runWorker((config) => serveHere(config, openLog(config.log.level), true))
      }),
  }
}
