/**
 * The accounts in force and their credentials, as one immutable snapshot.
 *
 * Whoever needs them is given a function that returns the snapshot in force, so that a reload is one assignment
 * and no login sees half of it.
 *
 * @module
 */
import { atOnce, inSlices } from '../files/in-slices.ts'
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
  return atOnce(indexing(list))
}

/** Indexes accounts in slices: 100,000 credentials take some 50 ms. */
export function createAccountsInSlices(list: readonly Account[]): Promise<Accounts> {
  return inSlices(indexing(list))
}

/** How many credentials are one step of the work. */
const STEP = 256

function* indexing(list: readonly Account[]): Generator<undefined, Accounts> {
  // Maps, not objects: an account may be called `__proto__` or `constructor`.
  const byAccount = new Map<string, ReadonlyMap<string, Credential>>()
  const scryptCosts: ScryptParameters[] = []
  let done = 0
  for (const { accountId, credentials } of list) {
    const byAccessKey = new Map<string, Credential>()
    byAccount.set(accountId, byAccessKey)
    for (const credential of credentials) {
      byAccessKey.set(credential.accessKey, credential)
      const { secretHash } = credential
      if (secretHash.scheme === 'scrypt') scryptCosts.push(secretHash.parameters)
      if (++done % STEP === 0) yield
    }
  }
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
