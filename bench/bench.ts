/**
 * What every scenario is given, and what it is.
 *
 * @module
 */
import type { Lab } from './lab/lab.ts'
import type { Trust } from './lab/trust.ts'
import type { Section } from './report/columns.ts'

/** One run of the suite. */
export interface Bench {
  readonly lab: Lab
  readonly trust: Trust
  /** Port of the upstream that answers everything with 1 KiB. */
  readonly smallUpstream: number
  /** How often each entrant is measured. */
  readonly rounds: number
  /** How long one measurement takes. */
  readonly seconds: number
  /** Whether the run is only to see that everything works. */
  readonly quick: boolean
  /** Names of the peers that are wanted; absent: all. */
  readonly peers?: readonly string[]
  /** Why the peers from npm are missing, if they are. */
  readonly npmMissing?: string
  /** Notes a peer that could not take part. */
  lacks(reason: string): void
}

/** Something that is measured. */
export interface Scenario {
  /** For `--only`. */
  readonly name: string
  /** Measures it. */
  run(bench: Bench): Promise<Section>
}
