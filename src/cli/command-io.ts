/** Shared by all commands: input and output, the failure of their input, and the parsing of arguments. */
import { isUtf8 } from 'node:buffer'
import { createInterface } from 'node:readline/promises'
import { addAbortSignal, type Readable, type Writable } from 'node:stream'
import { Command, InvalidArgumentError } from 'commander'
import type { Loaded } from '../base/result.ts'
import { textProblem } from '../base/values.ts'
import { filePath } from '../config/setting-kinds.ts'
import { fileErrorText, readUpTo } from '../files/files.ts'

/** Wrong usage, or unusable settings, keys or credentials. The message may have more lines. */
export class UsageFailure extends Error {}

interface Streams {
  readonly stdin: Readable
  readonly stdout: Writable
  readonly stderr: Writable
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Switches are flags without a value. */
export type Flags<Required extends string, Optional extends string = never, Switch extends string = never> = {
  readonly [Flag in Required]: string
} & { readonly [Flag in Optional]?: string } & { readonly [Flag in Switch]?: true }

type Columns<T> = Readonly<Record<string, (entry: T) => string>>

const MAX_STDIN_BYTES = 65_536 // no secret or token is longer

export class CommandIo {
  readonly env: Streams['env']
  readonly now: () => number
  readonly #streams: Streams

  constructor(streams: Streams, now: () => number = Date.now) {
    this.env = streams.env
    this.now = now
    this.#streams = streams
  }

  /** The command and its subcommands throw instead of ending the process. */
  command(name: string, description: string, ...examples: readonly string[]): Command {
    const { stdout, stderr } = this.#streams
    return describe(new Command(name), description, ...examples)
      .exitOverride()
      .configureOutput({
        writeOut: (text) => stdout.write(text),
        writeErr: (text) => stderr.write(text),
        outputError: (text, write) => write(withoutValue(text)),
      })
  }

  print(text: string): void {
    this.#streams.stdout.write(`${text}\n`)
  }

  printList<T>(json: boolean | undefined, entries: readonly T[], columns: Columns<T>): void {
    if (json) {
      this.print(JSON.stringify(entries))
    } else {
      this.printTable(entries, columns)
    }
  }

  printTable<T>(entries: readonly T[], columns: Columns<T>): void {
    const cells = Object.entries(columns).map(([title, cellOf]) => {
      const column = [title, ...entries.map(cellOf)]
      const width = column.reduce((widest, { length }) => Math.max(widest, length), 0)
      return column.map((cell) => cell.padEnd(width))
    })
    const rows = ['titles', ...entries].map((_, at) => cells.map((column) => column[at]).join('  '))
    this.print(rows.map((row) => row.trimEnd()).join('\n'))
  }

  warn(warning: string): void {
    this.#streams.stderr.write(`warning: ${warning}\n`)
  }

  /** Prints the warnings. @throws UsageFailure with the problems */
  unwrap<T>(result: Loaded<T>): T {
    if (!result.ok) {
      throw new UsageFailure(result.problems.join('\n'))
    }
    for (const warning of result.warnings) {
      this.warn(warning)
    }
    return result.value
  }

  readBytes(): Promise<Buffer> {
    return readUpTo(this.#streams.stdin, MAX_STDIN_BYTES)
  }

  /**
   * Removes only one final newline, of Windows too.
   * A terminal shows a prompt, echoes nothing and has no timeout.
   */
  async readSecret(timeoutMs?: number): Promise<string> {
    const { stdin } = this.#streams
    const isTerminal = 'isTTY' in stdin && stdin.isTTY === true
    const secret = isTerminal ? await this.#promptSecret() : await this.#readPipedSecret(timeoutMs)
    const problem = textProblem(secret)
    if (problem !== undefined) {
      throw new UsageFailure(`the secret on stdin ${problem}`)
    }
    return secret
  }

  async #promptSecret(): Promise<string> {
    const { stdin, stderr } = this.#streams
    // readline puts the terminal in raw mode, which has no echo. Without an output, readline echoes nothing.
    const terminal = createInterface({ input: stdin, terminal: true })
    stderr.write('Secret (not shown): ')
    try {
      for await (const secret of terminal) {
        return secret
      }
      throw new UsageFailure('no secret has been given') // Ctrl-C or Ctrl-D ended the input
    } finally {
      terminal.close()
      stderr.write('\n')
    }
  }

  async #readPipedSecret(timeoutMs?: number): Promise<string> {
    if (timeoutMs !== undefined) {
      addAbortSignal(AbortSignal.timeout(timeoutMs), this.#streams.stdin)
    }
    const bytes = await this.readBytes().catch((error: Error) => {
      const isLate = error.name === 'AbortError'
      throw new UsageFailure(isLate ? 'no secret has arrived on stdin' : `stdin: ${fileErrorText(error)}`)
    })
    if (!isUtf8(bytes)) {
      throw new UsageFailure('the secret on stdin is not UTF-8 text')
    }
    return bytes.toString().replace(/\r?\n$/, '')
  }
}

export const describe = (command: Command, description: string, ...examples: readonly string[]) =>
  command.description(description).addHelpText('after', ['\nExamples:', ...examples].join('\n  '))

/** Removes values that commander quotes: a value may be a misplaced secret, or a URL with a secret. */
const withoutValue = (text: string): string =>
  text.replace(/ argument '.*' is invalid/s, ' is invalid').replace(/(unknown option '[^=']*)=.*'/s, "$1'")

export const parserWith = (problemOf: (text: string) => string | undefined) => (text: string) => {
  const problem = problemOf(text)
  if (problem !== undefined) {
    throw new InvalidArgumentError(`It ${problem}.`)
  }
  return text
}

/** An unset shell variable results in an empty path. */
export const parsePath = parserWith((text) => filePath.safeParse(text).error?.issues[0]?.message)

export const integerIn = (min: number, max: number) => (text: string) => {
  const isValid = /^\d{1,10}$/.test(text) && Number(text) >= min && Number(text) <= max
  if (!isValid) {
    throw new InvalidArgumentError(`It must be an integer from ${min} to ${max}.`)
  }
  return Number(text)
}

export const parseSeconds = integerIn(1, 9_999_999_999)
