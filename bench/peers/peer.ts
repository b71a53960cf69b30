/**
 * What is compared: the sidecar and its peers, each a process of its own on the first core.
 *
 * @module
 */
import type { Lab, Running } from '../lab/lab.ts'
import type { Algorithm, Trust } from '../lab/trust.ts'

/** What a peer works with. */
export interface Surroundings {
  readonly lab: Lab
  readonly trust: Trust
  /** Port to listen on. */
  readonly port: number
  readonly upstreamPort: number
}

/** Something that can be put in front of an upstream. */
export interface Peer {
  /** Short, for tables; unique. */
  readonly name: string
  /** What it is, for the report. */
  readonly title: string
  /** The algorithm of the tokens it checks; absent if it checks none. */
  readonly checks?: Algorithm
  /** Why it cannot be run here. */
  readonly missing?: string
  /** Starts it; it may take a while to listen. */
  start(surroundings: Surroundings): Running
}
