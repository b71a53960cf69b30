/**
 * The program: its commands, and their way to the process itself.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
 *
 * @module
 */
import { availableParallelism } from 'node:os'
import { Command, CommanderError } from 'commander'
import type { App, AppOptions, ServingApp } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { tuneCollector } from '../ops/collector.ts'
import { createLog, type LogDestination, type Logger, openLogDestination } from '../ops/log.ts'
import { nodeFloorWarnings } from '../ops/node-floor.ts'
import { VERSION } from '../version.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './command-io.ts'
import type { Signals } from './signals.ts'

/** What the program works with, beside its process. */
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

/** Carries out what the command line asks for, and ends the process. */
export async function runProgram(options: ProgramOptions): Promise<void> {
  // A reader of our output that goes away must not take the traffic with it. This also puts a pipe in non-blocking
  // mode, which the log relies on.
  process.stdout.on('error', () => {})
  process.stderr.on('error', () => {})
  const destination = openLogDestination()
  const code = await obey(commands(options, destination)).then(() => 0, explain)
  await destination.close()
  // A pager reads as slowly as a person; a reader that goes away ends the wait.
  if (process.stdout.writableLength > 0) await new Promise((resolve) => process.stdout.write('', resolve))
  process.exit(code)
}

/** Carries out one of the commands. Help, and a name that is none, want to know each of those for people. */
async function obey({ forPeople, hidden }: Commands): Promise<void> {
  const program = new Command('storage-auth-sidecar')
    .description('Issues, checks and remembers Account API tokens in front of a storage service.')
    .version(VERSION)
    .exitOverride()
    .addHelpText('after', EXAMPLES)
  const asked = process.argv[2] ?? ''
  const known = { ...forPeople, ...hidden }
  const load = Object.hasOwn(known, asked) ? [known[asked]] : Object.values(forPeople)
  for (const command of load) if (command !== undefined) program.addCommand(await command())
  await program.parseAsync()
}

/** Says what went wrong, in words without a stack, and which exit code that is. */
function explain(error: Error): number {
  // Commander has printed its own message; asking for help or the version is no mistake.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  process.stderr.write(`${error.message}\n`)
  return error instanceof UsageFailure || error instanceof CommandFailure ? error.exitCode : 1
}

/** Commands by name. One is loaded when it is asked for: the modules of all would cost each sidecar memory and time. */
type Loaders = Readonly<Record<string, () => Promise<Command>>>

interface Commands {
  readonly forPeople: Loaders
  /** In no help. */
  readonly hidden: Loaders
}

function commands({ signals, entry }: ProgramOptions, destination: LogDestination): Commands {
  const io: CommandIo = {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
  }
  const stopRequested = () => signals.stopRequested()

  const openLog = (level: string): Logger => {
    const log = createLog(level, destination)
    // Where a fault of ours escapes every handler, the request it happened in waits for its time limit; all the
    // others share nothing with it and must not end because of it.
    process.on('uncaughtException', (error) => log.fatal({ err: error }, 'uncaught'))
    return log
  }

  /** Serves requests in this process, alone or as one of several. */
  const serveHere = async (
    config: Config,
    log: Logger,
    worker?: AppOptions['worker'],
  ): Promise<ServingApp> => {
    tuneCollector()
    const { createApp } = await import('../app.ts')
    const logLinesDropped = () => destination.dropped
    const app = await createApp({ config, log, logLinesDropped, ...(worker && { worker }) })
    signals.lastAct = app.cut
    return app
  }

  /** Serves requests in so many processes, which this one starts and watches. */
  const serveBy = async (workers: number, config: Config, log: Logger): Promise<App> => {
    const { createAppOfWorkers } = await import('../workers/app-of-workers.ts')
    return createAppOfWorkers({ config, log, workers, program: entry })
  }

  /** Makes the sidecar, of as many processes as are wanted. */
  const createSidecar = async (config: Config, log: Logger): Promise<App> => {
    const workers = config.workers === 'auto' ? availableParallelism() : config.workers
    const app = workers === 1 ? await serveHere(config, log) : await serveBy(workers, config, log)
    signals.onHangUp(() => void app.reload())
    return app
  }

  return {
    forPeople: {
      serve: async () =>
        (await import('./serve.ts')).serveCommand(io, {
          async createApp(config) {
            const log = openLog(config.log.level)
            const app = await createSidecar(config, log)
            return {
              ...app,
              async start() {
                const where = await app.start()
                for (const warning of nodeFloorWarnings(process.versions.node)) log.warn(warning)
                return where
              },
            }
          },
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
      token: async () => (await import('./token.ts')).tokenCommand(io),
    },
    hidden: {
      worker: async () =>
        (await import('./worker.ts')).workerCommand({
          channel: process,
          createApp(config, worker) {
            return serveHere(config, openLog(config.log.level), worker)
          },
        }),
    },
  }
}
