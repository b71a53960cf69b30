/**
 * The commands. Exit codes: 0 done, 1 failed (`NotDone`, or an internal error), 2 bad usage or settings
 * (`UsageFailure`).
 */
import { type Command, CommanderError } from 'commander'
import { LogDestination } from '../base/log.ts'
import { VERSION } from '../base/version.ts'
import { fileErrorText } from '../files/files.ts'
import { CommandIo, UsageFailure } from './command-io.ts'
import type { ProcessContext, Signals } from './serve.ts'

export async function runProgram(signals: Signals): Promise<void> {
  // If the event loop runs empty before the command ends, the exit code is 1.
  // Not by `process.exitCode`, with which commander would end `help`, too.
  process.once('beforeExit', () => process.exit(1))
  // By default, this signal opens Node's inspector, which runs code from any process of the pod.
  process.on('SIGUSR1', () => {})
  let stdoutError: string | undefined
  // A closed stdout does not end the process, but is reported: the lost output may be a new secret.
  // The first use of `process.stdout` also makes a pipe non-blocking, which the log needs.
  process.stdout.on('error', (error) => {
    stdoutError ??= fileErrorText(error)
  })
  process.stderr.on('error', () => {})
  const destination = new LogDestination()
  const code = await runCommand({ signals, destination }).then(() => 0, exitCodeOf)
  await destination.close()
  await flush(process.stdout)
  await flush(process.stderr)
  if (stdoutError !== undefined && code === 0) {
    process.stderr.write(`stdout cannot be written: ${stdoutError}\n`)
    process.exit(1)
  }
  process.exit(code)
}

/** A pager may read slowly. The wait ends when the pager ends. */
async function flush(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength > 0) {
    await new Promise((resolve) => stream.write('', resolve))
  }
}

async function runCommand(context: ProcessContext): Promise<void> {
  const io = new CommandIo(process)
  const description = 'Issues, checks and caches Account API tokens in front of a storage service.'
  const examples = ['demo', 'serve --config sidecar.yaml', 'help credentials']
  const lines = examples.map((example) => `storage-auth-sidecar ${example}`)
  const program = io.command('storage-auth-sidecar', description, ...lines).version(VERSION)
  // Loaded on demand: all modules together would cost a sidecar memory and start-up time.
  const commands: Readonly<Record<string, () => Promise<Command>>> = {
    serve: async () => (await import('./serve.ts')).serveCommand(io, context),
    demo: async () => (await import('./demo.ts')).demoCommand(io, context),
    config: async () => (await import('./config.ts')).configCommand(io),
    keys: async () => (await import('./keys.ts')).keysCommand(io),
    credentials: async () => (await import('./credentials.ts')).credentialsCommand(io),
    revocations: async () => (await import('./credentials.ts')).revocationsCommand(io),
    check: async () => (await import('./check.ts')).checkCommand(io),
    token: async () => (await import('./token.ts')).tokenCommand(io),
    worker: async () => (await import('./serve.ts')).workerCommand(context),
  }
  const requested = process.argv[2] ?? ''
  const needsAll = !Object.hasOwn(commands, requested) // `help`, for example, lists them
  for (const [name, load] of Object.entries(commands)) {
    if (needsAll || name === requested) {
      program.addCommand(await load(), { hidden: name === 'worker' })
    }
  }
  await program.parseAsync()
}

function exitCodeOf(error: Error): number {
  // Commander has printed its own message. A request for help or the version is not an error.
  if (error instanceof CommanderError) {
    return error.exitCode === 0 ? 0 : 2
  }
  process.stderr.write(`${error.message}\n`)
  return error instanceof UsageFailure ? 2 : 1
}
