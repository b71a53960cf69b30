/**
 * The accounts in force and their credentials, as one immutable snapshot.
 *
 * Whoever needs them is given a function that returns the snapshot in force, so that a reload is one assignment
 * and no login sees half of it.
 *
 * @module
 */
import type { ScryptParameters, SecretHash } from './secret-hash.ts'

/** One credential of an account. */
export interface Credential {
  readonly accessKey: string
  readonly secretHash: SecretHash
  /** Epoch milliseconds from which on it is no longer in force; `Infinity` when it never expires. */
  readonly expiresAt: number
  readonly disabled: boolean
}

/** An account and its credentials. */
export interface Account {
  readonly accountId: string
  readonly credentials: readonly Credential[]
}

/** A snapshot to look credentials up in. */
export interface Accounts {
  has(accountId: string): boolean
  find(accountId: string, accessKey: string): Credential | undefined
  /** What each scrypt credential costs to check: one entry for each of them. */
  readonly scryptCosts: readonly ScryptParameters[]
}

/** Indexes accounts. Identifiers are unique among accounts, and access keys within one. */
export function createAccounts(list: readonly Account[]): Accounts {
  // Maps, not objects: an account may be called `__proto__` or `constructor`.
  const byAccount = new Map(
    list.map(({ accountId, credentials }) => [
      accountId,
      new Map(credentials.map((credential) => [credential.accessKey, credential])),
    ]),
  )
  const scryptCosts = list
    .flatMap(({ credentials }) => credentials.map(({ secretHash }) => secretHash))
    .flatMap((hash) => (hash.scheme === 'scrypt' ? [hash.parameters] : []))
  return {
    has: (accountId) => byAccount.has(accountId),
    find: (accountId, accessKey) => byAccount.get(accountId)?.get(accessKey),
    scryptCosts,
  }
}

/** Whether a credential may be used at this moment (epoch milliseconds). */
export function isInForce(credential: Credential, now: number): boolean {
  return !credential.disabled && now < credential.expiresAt
}
