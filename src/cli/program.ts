/** The commands, and how the process runs them. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. */
import { availableParallelism } from 'node:os'
import { Command, CommanderError } from 'commander'
import type { App, AppOptions, ServingApp } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { LoadedConfig } from '../config/load.ts'
import { createLog, type LogDestination, type Logger, openLogDestination } from '../ops/log.ts'
import { errorCode, fileErrorReason } from '../reload/files.ts'
import { VERSION } from '../version.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'
import type { Signals } from './signals.ts'

const EXAMPLES = `
Examples:
  storage-auth-sidecar demo
  storage-auth-sidecar serve --config sidecar.yaml
  storage-auth-sidecar help credentials`

export async function runProgram(signals: Signals): Promise<void> {
  process.exitCode = 1 // in case that nothing keeps the process alive before the command has ended
  let stdoutError: string | undefined
  // A closed stdout must not end the process. Using `process.stdout` also puts a pipe in non-blocking mode, which the
  // log needs.
  process.stdout.on('error', (error) => {
    // EPIPE: the reader closed it, such as `head`. Any other error, such as a full disk, has lost output.
    if (errorCode(error) !== 'EPIPE') stdoutError ??= fileErrorReason(error)
  })
  process.stderr.on('error', () => {})
  const destination = openLogDestination()
  const code = await run(commands(signals, destination)).then(() => 0, exitCodeOf)
  await destination.close()
  // A pager may read slowly; a reader that disconnects ends the wait.
  if (process.stdout.writableLength > 0) await new Promise((resolve) => process.stdout.write('', resolve))
  if (stdoutError === undefined || code !== 0) process.exit(code)
  process.stderr.write(`stdout cannot be written: ${stdoutError}\n`)
  process.exit(1)
}

async function run(loaders: Loaders): Promise<void> {
  const program = new Command('storage-auth-sidecar')
    .description('Issues, checks and caches Account API tokens in front of a storage service.')
    .version(VERSION)
    .exitOverride()
    .addHelpText('after', EXAMPLES)
  const name = process.argv[2] ?? ''
  const needsAll = !Object.hasOwn(loaders, name) || name === 'completion'
  for (const load of needsAll ? Object.values(loaders) : [loaders[name]]) {
    const command = await load?.()
    // Only `serve` starts a worker.
    if (command !== undefined) program.addCommand(command, { hidden: command.name() === 'worker' })
  }
  await program.parseAsync()
}

function exitCodeOf(error: Error): number {
  // Commander has printed its own message; a request for help or the version is no error.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  process.stderr.write(`${error.message}\n`)
  return error instanceof UsageFailure || error instanceof CommandFailure ? error.exitCode : 1
}

type ServeHow = Pick<AppOptions, 'settingsFile' | 'worker'>

/** Commands by name, loaded on demand: all modules together would cost a sidecar memory and start-up time. */
type Loaders = Readonly<Record<string, () => Promise<Command>>>

function commands(signals: Signals, destination: LogDestination): Loaders {
  const io: CommandIo = process
  const stopRequested = () => signals.listen()

  const openLog = (level: string): Logger => {
    const log = createLog(level, destination)
    // The request of an uncaught error runs into its time limit; all others continue.
    process.on('uncaughtException', (error) => log.fatal({ err: error }, 'uncaught exception'))
    return log
  }

  /** Serves requests in this process, alone or as one of several. */
  const serveHere = async (config: Config, log: Logger, how: ServeHow): Promise<ServingApp> => {
    const { createApp } = await import('../app.ts')
    const app = await createApp({ config, log, logLinesDropped: () => destination.dropped, ...how })
    signals.beforeExit = app.abort
    return app
  }

  const createSidecar = async ({ config, file }: LoadedConfig, log: Logger): Promise<App> => {
    const workers = config.workers === 'auto' ? availableParallelism() : config.workers
    let app: App
    if (workers === 1) app = await serveHere(config, log, { settingsFile: file })
    else {
      const { createPrimary } = await import('../workers/primary.ts')
      app = await createPrimary(config, workers, file, log, destination)
    }
    signals.onHangUp(() => void app.reload())
    return app
  }

  return {
    serve: async () =>
      (await import('./serve.ts')).serveCommand(io, {
        createApp: (loaded) => createSidecar(loaded, openLog(loaded.config.log.level)),
        stopRequested,
      }),
    demo: async () =>
      (await import('./demo.ts')).demoCommand(io, {
        createApp: (loaded) => createSidecar(loaded, openLog('warn')),
        stopRequested,
      }),
    config: async () => (await import('./config.ts')).configCommand(io),
    keys: async () => (await import('./keys.ts')).keysCommand(io),
    credentials: async () => (await import('./credentials.ts')).credentialsCommand(io),
    revocations: async () => (await import('./revocations.ts')).revocationsCommand(io),
    check: async () => (await import('./check.ts')).checkCommand(io),
    token: async () => (await import('./token.ts')).tokenCommand(io),
    completion: async () => (await import('./completion.ts')).completionCommand(io),
    worker: async () =>
      new Command('worker').action(async () => {
        if (process.send === undefined)
          throw new UsageFailure('workers are started by serve, with the setting workers')
        const { runWorker } = await import('../workers/worker.ts')
        await runWorker((config) => serveHere(config, openLog(config.log.level), { worker: true }))
      }),
  }
}
