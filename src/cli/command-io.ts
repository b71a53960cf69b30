/**
 * What a command may touch of the world, and the two ways in which it can fail.
 *
 * @module
 */
import type { Readable, Writable } from 'node:stream'

/** The edges a command works with; `main.ts` passes the process's own, tests pass theirs. */
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
