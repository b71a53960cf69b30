/** Runs a command group as the program would, without a process: text in, text and exit code out. */
import { Readable, Writable } from 'node:stream'
import { type Command, CommanderError } from 'commander'
import { NotDone } from '../../src/base/result.ts'
import { CommandIo, UsageFailure } from '../../src/cli/command-io.ts'

/** What a command did. */
interface CommandRun {
  readonly stdout: string
  /** What the command and commander wrote; the program adds the failure's message. */
  readonly stderr: string
  /** How it ended, if not well: the exit code the program gives it, and the message. */
  readonly failure: { readonly exitCode: number; readonly message: string } | undefined
}

/** What a command is given besides its arguments. */
export interface CommandInput {
  readonly stdin?: string | Buffer
  readonly env?: CommandIo['env']
  /** Epoch milliseconds. */
  readonly now?: number
}

/** Runs one command; a fault that is no failure of a command is thrown. */
export async function runCommand(
  make: (io: CommandIo) => Command,
  args: readonly string[],
  { stdin = '', env = {}, now }: CommandInput = {},
): Promise<CommandRun> {
  const written = { stdout: '', stderr: '' }
  const collect = (name: keyof typeof written) =>
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        written[name] += chunk
        done()
      },
    })
  const streams = {
    stdin: Readable.from([Buffer.from(stdin)]),
    stdout: collect('stdout'),
    stderr: collect('stderr'),
    env,
  }
  const io = new CommandIo(streams, now === undefined ? Date.now : () => now)
  let failure: CommandRun['failure']
  try {
    await make(io).parseAsync([...args], { from: 'user' })
  } catch (error) {
    if (error instanceof NotDone) {
      failure = { exitCode: 1, message: error.message }
    } else if (error instanceof UsageFailure) {
      failure = { exitCode: 2, message: error.message }
    } else if (!(error instanceof CommanderError)) {
      throw error
    } else if (error.exitCode !== 0) {
      failure = { exitCode: 2, message: written.stderr }
    }
  }
  return { ...written, failure }
}
