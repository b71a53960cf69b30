#!/usr/bin/env node
/**
 * The program: its commands, and the only place that touches the process itself.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
 *
 * @module
 */
import { availableParallelism } from 'node:os'
import { Command, CommanderError } from 'commander'
import type { App, AppOptions, ServingApp } from './app.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './cli/command-io.ts'
import type { StopSignal } from './cli/serve.ts'
import type { Config } from './config/schema.ts'
import { createLog, type Logger, openLogDestination } from './ops/log.ts'
import { nodeFloorWarnings } from './ops/node-floor.ts'
import { VERSION } from './version.ts'

const io: CommandIo = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
}
const logDestination = openLogDestination()

// A reader of our output that goes away must not take the traffic with it. This also puts a pipe in non-blocking
// mode, which the log relies on.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})

/** Makes the sidecar, of as many processes as are wanted. */
async function createLoggedApp(config: Config, log: Logger): Promise<App> {
  const workers = config.workers === 'auto' ? availableParallelism() : config.workers
  const app = workers === 1 ? await serveHere(config, log) : await serveBy(workers, config, log)
  process.on('SIGHUP', () => void app.reload())
  return app
}

/** Serves requests in this process, alone or as one of several. */
async function serveHere(
  config: Config,
  log: Logger,
  worker?: NonNullable<AppOptions['worker']>,
): Promise<ServingApp> {
  const { createApp } = await import('./app.ts')
  const logLinesDropped = () => logDestination.dropped
  return createApp({ config, log, logLinesDropped, ...(worker && { worker }) })
}

/** Serves requests in so many processes, which this one starts and watches. */
async function serveBy(workers: number, config: Config, log: Logger): Promise<App> {
  const { createAppOfWorkers } = await import('./workers/app-of-workers.ts')
  logDestination.share()
  return createAppOfWorkers({ config, log, workers, program: import.meta.filename })
}

function openLog(level: string): Logger {
  const log = createLog(level, logDestination)
  // Where a fault of ours escapes every handler, the request it happened in waits for its time limit; all the
  // others share nothing with it and must not end because of it.
  process.on('uncaughtException', (error) => log.fatal({ err: error }, 'uncaught'))
  return log
}

/** A worker is told what to do by its supervisor; a signal to the terminal's processes is none of its business. */
async function runAsWorker(): Promise<Command> {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
  const { workerCommand } = await import('./cli/worker.ts')
  logDestination.share()
  return workerCommand({
    channel: process,
    createApp: (config, worker) => serveHere(config, openLog(config.log.level), worker),
  })
}

function warnOfOldNode(log: Logger): void {
  for (const warning of nodeFloorWarnings(process.versions.node)) log.warn(warning)
}

/** Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm. Within this time it is one. */
const ECHO_MS = process.env['npm_lifecycle_event'] === 'start' ? 500 : 0

/** The first signal asks to stop, the second one does not ask. */
function stopRequested(): Promise<StopSignal> {
  return new Promise((resolve) => {
    let askedAt: number | undefined
    const onSignal = (signal: StopSignal) => {
      if (askedAt !== undefined && performance.now() - askedAt >= ECHO_MS) process.exit(1)
      askedAt ??= performance.now()
      resolve(signal)
    }
    process.on('SIGTERM', onSignal)
    process.on('SIGINT', onSignal)
    process.on('SIGHUP', () => {}) // its default is the end of the process
  })
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar demo
  storage-auth-sidecar serve --config sidecar.yaml
  storage-auth-sidecar help credentials`

/** The commands. One is loaded when it is asked for: the modules of all would cost each sidecar memory and time. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  serve: async () =>
    (await import('./cli/serve.ts')).serveCommand(io, {
      async createApp(config) {
        const log = openLog(config.log.level)
        const app = await createLoggedApp(config, log)
        return {
          ...app,
          async start() {
            const where = await app.start()
            warnOfOldNode(log)
            return where
          },
        }
      },
      stopRequested,
    }),
  demo: async () =>
    (await import('./cli/demo.ts')).demoCommand(io, {
      createApp: (config) => createLoggedApp(config, openLog('warn')),
      stopRequested,
    }),
  config: async () => (await import('./cli/config.ts')).configCommand(io),
  keys: async () => (await import('./cli/keys.ts')).keysCommand(io),
  credentials: async () => (await import('./cli/credentials.ts')).credentialsCommand(io),
  token: async () => (await import('./cli/token.ts')).tokenCommand(io),
}
/** Commands that are not for people, and in no help. */
const HIDDEN: typeof COMMANDS = { worker: runAsWorker }

const program = new Command('storage-auth-sidecar')
  .description('Issues, checks and remembers Account API tokens in front of a storage service.')
  .version(VERSION)
  .exitOverride()
  .addHelpText('after', EXAMPLES)

run().then(
  () => exit(0),
  (error: Error) => exit(explain(error)),
)

/** Carries out what the command line asks for. Help, and a name that is none, want to know every command. */
async function run(): Promise<void> {
  const asked = process.argv[2] ?? ''
  const known = { ...COMMANDS, ...HIDDEN }
  const load = Object.hasOwn(known, asked) ? [known[asked]] : Object.values(COMMANDS)
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

/** Ends the process once what was written is out. */
async function exit(code: number): Promise<void> {
  await logDestination.flush()
  // A pager reads as slowly as a person; a reader that goes away ends the wait.
  if (process.stdout.writableLength > 0) await new Promise((resolve) => process.stdout.write('', resolve))
  process.exit(code)
}
