/**
 * Credentials that are changed one by one while they are in use.
 *
 * In: rows, by the number they have in a database. Out: accounts to look credentials up in. A set of changes is
 * made in one step, without a turn of the event loop in between, so that nobody sees half of it; it costs what the
 * changes cost, however many credentials there are (one of 100,000 changed: microseconds, against some
 * 50 ms to index all of them anew).
 *
 * @module
 */
import type { Accounts, Credential } from './accounts.ts'
import type { ScryptParameters } from './secret-hash.ts'

/** What is to become of one row: what it holds now, or nothing when it is gone or cannot be used. */
export interface CredentialChange {
  readonly id: string
  readonly stored?: { readonly accountId: string; readonly credential: Credential } | undefined
}

/** Credentials by row. */
export interface CredentialTable {
  /** Always the newest state. */
  readonly accounts: Accounts
  readonly size: number
  apply(changes: readonly CredentialChange[]): void
}

interface Name {
  readonly accountId: string
  readonly accessKey: string
}

/** Makes an empty table. */
export function createCredentialTable(): CredentialTable {
  const names = new Map<string, Name>()
  // Maps, not objects: an account may be called `__proto__` or `constructor`.
  const byAccount = new Map<string, Map<string, Credential>>()
  let scryptCosts: readonly ScryptParameters[] | undefined

  function remove(id: string): void {
    const name = names.get(id)
    if (name === undefined) return
    names.delete(id)
    const credentials = byAccount.get(name.accountId)
    credentials?.delete(name.accessKey)
    if (credentials?.size === 0) byAccount.delete(name.accountId)
  }

  function put(id: string, accountId: string, credential: Credential): void {
    const { accessKey } = credential
    names.set(id, { accountId, accessKey })
    const credentials = byAccount.get(accountId)
    if (credentials === undefined) byAccount.set(accountId, new Map([[accessKey, credential]]))
    else credentials.set(accessKey, credential)
  }

  return {
    accounts: {
      has: (accountId) => byAccount.has(accountId),
      find: (accountId, accessKey) => byAccount.get(accountId)?.get(accessKey),
      get scryptCosts() {
        scryptCosts ??= costsOf(byAccount.values())
        return scryptCosts
      },
    },
    get size() {
      return names.size
    },
    apply(changes) {
      // All removals first: two rows may have changed names with each other.
      for (const { id } of changes) remove(id)
      for (const { id, stored } of changes) {
        if (stored !== undefined) put(id, stored.accountId, stored.credential)
      }
      scryptCosts = undefined
    },
  }
}

function costsOf(accounts: Iterable<ReadonlyMap<string, Credential>>): ScryptParameters[] {
  const costs: ScryptParameters[] = []
  for (const credentials of accounts) {
    for (const { secretHash } of credentials.values()) {
      if (secretHash.scheme === 'scrypt') costs.push(secretHash.parameters)
    }
  }
  return costs
}
