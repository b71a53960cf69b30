/**
 * The list of the rooms (`room.ts`). A room that is switched off is not imported.
 * A new room: its folder, an entry here in each list that it needs, its group of settings, and its page of the docs.
 */
import type { Logger } from './base/log.ts'
import type { Config, Problem } from './config/config.ts'
import type { AdminRoom } from './ops/admin-room.ts'
import type { ReloadResult } from './reload/reloadable.ts'
import type { Room } from './room.ts'

export interface RoomOptions {
  readonly config: Config
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called for each new version of a file of the room. `subject`: the room's `reloadSubject`. */
  readonly onReload?: (subject: string, result: ReloadResult) => void
}

/** The rooms that are switched on. A room whose files have problems is left out. */
export interface OpenedRooms {
  readonly rooms: readonly Room[]
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Opens the rooms of a process that serves requests. Never rejects. They poll only after `start` is called. */
export async function openRooms(_options: RoomOptions): Promise<OpenedRooms> {
  return { rooms: [], problems: [], warnings: [] }
}

/** Opens the rooms of the process that has the admin listener. */
export async function openAdminRooms(_config: Config): Promise<readonly AdminRoom[]> {
  return []
}
