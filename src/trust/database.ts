/**
 * Credentials and revocations of a database that may take its time to answer.
 *
 * In: where the database is. Out: a store that lets nobody in until the database has answered once, and follows it
 * from then on.
 *
 * @module
 */
import type { PostgresStore, PostgresStoreOptions } from '../credentials/postgres/store.ts'
import type { CredentialStore } from '../credentials/store.ts'
import type { Logger } from '../ops/log.ts'
import { UnusableTrust } from './unusable-trust.ts'

/** What it works with: what the store does, beside the log. */
export interface DatabaseOptions
  extends Required<
    Pick<PostgresStoreOptions, 'urlFile' | 'poolSize' | 'now' | 'onChange' | 'onReload' | 'onFault'>
  > {
  readonly log: Logger
}

/** Begins to ask the database. */
export function openDatabase(options: DatabaseOptions) {
  const waiting = new AbortController()
  let opened: PostgresStore | undefined
  const opening = import('../credentials/postgres/store.ts').then(({ openPostgresStore }) =>
    openPostgresStore({ ...options, signal: waiting.signal }),
  )
  const store: CredentialStore = {
    authenticate: async (...login) => (await opened?.store.authenticate(...login)) ?? 'unavailable',
    hasAccount: (accountId) => opened?.store.hasAccount(accountId) ?? false,
    standing: (accountId, accessKey) => opened?.store.standing(accountId, accessKey) ?? { inForce: false },
  }
  return {
    store,
    opened: () => opened,
    check: () => opened?.ready() ?? { name: 'credentials', ok: false },
    async whenComplete() {
      const outcome = await opening
      if (outcome.ok) {
        opened = outcome
        for (const warning of outcome.warnings) options.log.warn(warning)
        return true
      }
      if (waiting.signal.aborted) return false
      throw new UnusableTrust(outcome.problems.join('\n'))
    },
    refresh: async () => opened?.refresh(),
    async stop() {
      waiting.abort()
      const outcome = await opening
      if (outcome.ok) await outcome.stop()
    },
  }
}
