#!/usr/bin/env node
/**
 * The program: its commands, and the only place that touches the process itself.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
 *
 * @module
 */
import { Command, CommanderError } from 'commander'
import type { App } from './app.ts'
import { CommandFailure, type CommandIo, UsageFailure } from './cli/command-io.ts'
import type { StopSignal } from './cli/serve.ts'
import type { Config } from './config/schema.ts'
import { createLog, openLogDestination } from './ops/log.ts'
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

async function createLoggedApp(config: Config, level: string = config.log.level): Promise<App> {
  const log = createLog(level, logDestination)
  // Where a fault of ours escapes every handler, the request it happened in waits for its time limit; all the
  // others share nothing with it and must not end because of it.
  process.on('uncaughtException', (error) => log.fatal({ err: error }, 'uncaught'))
  const { createApp } = await import('./app.ts')
  const app = await createApp({ config, log, logLinesDropped: () => logDestination.dropped })
  process.on('SIGHUP', () => void app.reload())
  return app
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
    (await import('./cli/serve.ts')).serveCommand(io, { createApp: createLoggedApp, stopRequested }),
  demo: async () =>
    (await import('./cli/demo.ts')).demoCommand(io, {
      createApp: (config) => createLoggedApp(config, 'warn'),
      stopRequested,
    }),
  config: async () => (await import('./cli/config.ts')).configCommand(io),
  keys: async () => (await import('./cli/keys.ts')).keysCommand(io),
  credentials: async () => (await import('./cli/credentials.ts')).credentialsCommand(io),
  token: async () => (await import('./cli/token.ts')).tokenCommand(io),
}

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
  const names = Object.hasOwn(COMMANDS, asked) ? [asked] : Object.keys(COMMANDS)
  for (const name of names) program.addCommand(await (COMMANDS[name] as () => Promise<Command>)())
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
