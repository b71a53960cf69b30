/**
 * The document of `/status.json`, which the status page shows: the state, its problems, and what rooms add.
 */

import type { AdminRoom, StatusLine } from './admin-room.ts'
import { type AccountCounts, topAccounts } from './busiest-accounts.ts'
import { type StatusProblem, sortProblems, statusProblems } from './problems.ts'
import type { Windows } from './samples.ts'
import { type ReadyCondition, type Status, type StatusConfig, statusOf } from './status.ts'

/** `status-page/page.js` is checked against it. */
export interface StatusDocument extends Status {
  readonly problems: readonly StatusProblem[]
  /** What rooms show of themselves. */
  readonly features: readonly StatusLine[]
  /** Of the last ten minutes. */
  readonly busiest: AccountCounts
}

export interface StatusParts {
  readonly config: StatusConfig
  readonly conditions: readonly ReadyCondition[]
  readonly windows: Windows
  readonly rooms: readonly AdminRoom[]
  readonly accounts: AccountCounts
}

export function statusDocument({
  config,
  conditions,
  windows,
  rooms,
  accounts,
}: StatusParts): StatusDocument {
  const status = statusOf(config, conditions, windows)
  const ofRooms = rooms.flatMap((room) => [...(room.problems?.(windows) ?? [])])
  return {
    ...status,
    problems: sortProblems([...statusProblems(windows, status), ...ofRooms]),
    features: rooms.flatMap((room) => [...(room.statusLines?.(windows) ?? [])]),
    busiest: topAccounts(accounts),
  }
}
