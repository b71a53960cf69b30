/**
 * What one source (the file, the environment, the flags) says about the settings.
 *
 * @module
 */
import type { Problem, Step } from './problem.ts'
import type { Setting } from './settings.ts'

/** A value somebody gave to a setting. Not checked yet. */
export interface Given {
  readonly setting: Setting
  readonly value: unknown
  /** Where it was given: `file:line:column`, `env NAME` or `flag --name`. */
  readonly origin: string
  /** Where to look when the part of the value that `below` leads to is wrong, or with `key` its name. */
  readonly place: (below: readonly Step[], key?: 'key') => string
}

/** All a source says. */
export interface Reading {
  readonly given: readonly Given[]
  /** What cannot be read, and names nobody knows. */
  readonly problems: readonly Problem[]
  /** False when the source could not be read at all: nothing can be said of settings that seem missing. */
  readonly readable: boolean
}
