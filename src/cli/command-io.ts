/** Shared by commands: streams, the two kinds of failure, output and arguments. */
import { isUtf8 } from 'node:buffer'
import { once } from 'node:events'
import { createInterface } from 'node:readline/promises'
import { addAbortSignal, type Readable, Writable } from 'node:stream'
import { Command, InvalidArgumentError } from 'commander'
import { nameProblem, namesProblem, secretProblem } from '../credentials/names.ts'
import { fileErrorReason, type NotDone } from '../reload/files.ts'
import { scopeProblem } from '../token/scopes.ts'

export interface CommandIo {
  readonly stdin: Readable
  readonly stdout: Writable
  readonly stderr: Writable
  readonly env: Readonly<Record<string, string | undefined>>
}

/** The command was understood but could not be done: exit code 1. The message is one plain line. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly exitCode = 1
}

/** Wrong usage, or settings, keys or credentials that cannot be used: exit code 2. May have several lines. */
export class UsageFailure extends Error {
  override readonly name = 'UsageFailure'
  readonly exitCode = 2
}

/** Throws instead of ending the process. */
export function createCommand(name: string, description: string, io: CommandIo): Command {
  return new Command(name)
    .description(description)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      outputError: (text, write) => write(withoutValue(text)),
    })
}

/** Commander's message without the value of an option: a secret may stand in the wrong place, or in a URL. */
function withoutValue(text: string): string {
  return text
    .replace(/ argument '.*' is invalid/s, ' is invalid')
    .replace(/(unknown option '[^=']*)=.*'/s, "$1'")
}

export const printer = (io: CommandIo) => (text: string) => void io.stdout.write(`${text}\n`)

/** For output that cannot be printed again: here a reader that has gone is a failure. */
export const printOnce = (io: CommandIo, text: string) =>
  new Promise<void>((resolve, reject) => {
    const failed = (error: Error) => new CommandFailure(`stdout cannot be written: ${fileErrorReason(error)}`)
    io.stdout.write(`${text}\n`, (error) => (error ? reject(failed(error)) : resolve()))
  })

export const warner = (io: CommandIo) => (warning: string) => void io.stderr.write(`warning: ${warning}\n`)

/** The cell of an entry, by the title of its column. */
type Columns<T> = Readonly<Record<string, (entry: T) => string>>

export function formatTable<T>(entries: readonly T[], columns: Columns<T>): string {
  const cells = Object.entries(columns).map(([title, cellOf]) => {
    const column = [title, ...entries.map(cellOf)]
    const width = column.reduce((widest, { length }) => Math.max(widest, length), 0)
    return column.map((cell) => cell.padEnd(width))
  })
  const rows = ['titles', ...entries].map((_, at) => cells.map((column) => column[at]).join('  '))
  return rows.map((row) => row.trimEnd()).join('\n')
}

export const formatList = <T>(json: boolean | undefined, entries: readonly T[], columns: Columns<T>) =>
  json ? JSON.stringify(entries) : formatTable(entries, columns)

/** The value of a result; throws the failure that ends the command. */
export function unwrap<R extends { readonly ok: true } | Failed>(
  result: R,
): Extract<R, { readonly ok: true }> {
  if (result.ok) return result as Extract<R, { readonly ok: true }>
  const message = result.problems.join('\n')
  throw result.unusable === false ? new CommandFailure(message) : new UsageFailure(message)
}

/** Without `unusable`, settings, keys or credentials are. */
type Failed = Omit<NotDone, 'unusable'> & Partial<NotDone>

interface NameFlags {
  readonly account: string
  readonly accessKey: string
  readonly scope?: string | undefined
}

/** @throws UsageFailure where a token could not carry them */
export function checkNames({ account, accessKey, scope }: NameFlags) {
  const problems = [
    ['--account', nameProblem(account)],
    ['--access-key', nameProblem(accessKey) ?? namesProblem(account, accessKey, scope)],
    ['--scope', scope === undefined ? undefined : scopeProblem(scope)],
  ]
  for (const [flag, problem] of problems)
    if (problem !== undefined) throw new UsageFailure(`${flag} ${problem}`)
  return { accountId: account, accessKey }
}

/** More than any secret or token takes. */
const MAX_STDIN_BYTES = 65_536

export async function readStdin(stdin: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of stdin) {
    chunks.push(Buffer.from(chunk))
    if (chunks.reduce((sum, { length }) => sum + length, 0) > MAX_STDIN_BYTES) break
  }
  return Buffer.concat(chunks)
}

/**
 * Every byte counts, save one final newline. A terminal shows a prompt and echoes nothing.
 * @throws UsageFailure where it is no secret, or none arrives in time (a terminal may take its time)
 */
export async function readSecret({ stdin, stderr }: CommandIo, timeoutMs?: number): Promise<string> {
  const isTerminal = 'isTTY' in stdin && stdin.isTTY === true
  const secret = isTerminal ? await promptSecret(stdin, stderr) : await readPipedSecret(stdin, timeoutMs)
  const problem = secretProblem(secret)
  if (problem !== undefined) throw new UsageFailure(`the secret on stdin ${problem}`)
  return secret
}

async function promptSecret(input: Readable, stderr: Writable): Promise<string> {
  // readline puts the terminal in raw mode, without its echo, and writes its own echo to the output.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() })
  const terminal = createInterface({ input, output, terminal: true })
  stderr.write('Secret (not shown): ')
  try {
    // Ctrl-C rejects, Ctrl-D closes without an answer.
    const secret = await Promise.race([terminal.question(''), once(terminal, 'close')]).catch(() => [])
    if (typeof secret !== 'string') throw new UsageFailure('no secret has been given')
    return secret
  } finally {
    terminal.close()
    stderr.write('\n')
  }
}

async function readPipedSecret(stdin: Readable, timeoutMs?: number): Promise<string> {
  if (timeoutMs !== undefined) addAbortSignal(AbortSignal.timeout(timeoutMs), stdin)
  const bytes = await readStdin(stdin).catch((error: Error) => {
    const isLate = error.name === 'AbortError'
    throw new UsageFailure(isLate ? 'no secret has arrived on stdin' : `stdin: ${fileErrorReason(error)}`)
  })
  if (!isUtf8(bytes)) throw new UsageFailure('the secret on stdin is not UTF-8 text')
  return bytes.toString().replace(/\n$/, '')
}

/** A variable of the shell may be empty. */
export function parsePath(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must not be empty.')
  return text
}

export function parseSeconds(text: string): number {
  if (!/^\d{1,10}$/.test(text)) throw new InvalidArgumentError('It must be an integer number of seconds.')
  return Number(text)
}

export function parsePort(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65535) {
    throw new InvalidArgumentError('It must be a number from 0 to 65535.')
  }
  return Number(text)
}
