/** A PostgreSQL store of one replica, as a test sees it. */
import type { Test } from 'tap'
import {
  openPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from '../../src/credentials/postgres/store.ts'

/** A store, and its calls back. */
export interface OpenedStore extends PostgresStore {
  /** The log: fields and message of each line. */
  readonly log: Record<string, unknown>[]
  /** How often caches had to be emptied. */
  changes(): number
  /** How reloads ended, and how many seconds after the change. */
  readonly reloads: [string, number | undefined][]
}

/** Opens a store that must open; it is stopped at the end of the test. */
export async function openStore(
  t: Pick<Test, 'teardown'>,
  urlFile: string,
  options: Partial<PostgresStoreOptions> = {},
): Promise<OpenedStore> {
  const log: Record<string, unknown>[] = []
  const reloads: [string, number | undefined][] = []
  const write = (fields: object, message: string) => void log.push({ ...fields, message })
  let changes = 0
  const opened = await openPostgresStore({
    urlFile,
    now: Date.now,
    log: { info: write, warn: write },
    onChange: () => {
      changes++
    },
    onReload: (result, seconds) => reloads.push([result, seconds]),
    ...options,
  })
  if (!opened.ok) throw new Error(opened.problems.join('\n'))
  t.teardown(opened.stop)
  return { ...opened, log, reloads, changes: () => changes }
}

/** Why a test file is skipped. */
export const NO_SERVER = 'no PostgreSQL server can be had on this machine'
