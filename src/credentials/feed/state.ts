/** The state that a follower holds: the credentials and revocations of the last whole state and its changes. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { CredentialName } from '../credential-list.ts'
import { type Revocation, RevocationList } from '../revocation-list.ts'
import { credentialKey, type FeedUpdate, type FollowedCredential, revocationKey } from './format.ts'

/** After this number of entries, the event loop serves requests. */
const ENTRIES_PER_TURN = 2000

export class FollowedState {
  #version: string
  readonly #credentials = new Map<string, FollowedCredential>()
  /** How many credentials each account has. */
  readonly #accounts = new Map<string, number>()
  readonly #revocationKeys = new Set<string>()
  readonly revocations = new RevocationList()

  private constructor(version: string) {
    this.#version = version
  }

  /** Makes a new state of a whole one. Between parts, requests are served. */
  static async of(update: FeedUpdate): Promise<FollowedState> {
    const state = new FollowedState(update.version)
    const { credentials, revocations } = update
    await eachInTurns(credentials.set, (credential) => state.#set(credential))
    await eachInTurns(revocations.set, (revocation) => state.#addRevocation(revocation))
    return state
  }

  get version(): string {
    return this.#version
  }

  /** The number of credentials, those that have expired since included. */
  get size(): number {
    return this.#credentials.size
  }

  /**
   * Applies changes that lead on from this version, in one turn. What they remove may be missing already:
   * the clocks of hubs differ, so one may leave out an expired credential before another removes it.
   */
  apply({ version, credentials, revocations }: FeedUpdate): void {
    for (const name of credentials.removed) {
      this.#remove(name)
    }
    for (const credential of credentials.set) {
      this.#set(credential)
    }
    for (const revocation of revocations.removed) {
      if (this.#revocationKeys.delete(revocationKey(revocation))) {
        this.revocations.remove(revocation)
      }
    }
    for (const revocation of revocations.set) {
      this.#addRevocation(revocation)
    }
    this.#version = version
  }

  find(name: CredentialName): FollowedCredential | undefined {
    return this.#credentials.get(credentialKey(name))
  }

  hasAccount(accountId: string): boolean {
    return this.#accounts.has(accountId)
  }

  countActive(now: number): number {
    let count = 0
    for (const { expiresAtMs } of this.#credentials.values()) {
      count += Number(now < expiresAtMs)
    }
    return count
  }

  /** The entries in no order, for comparisons. */
  entries() {
    return { credentials: [...this.#credentials.values()], revocations: [...this.#revocationKeys] }
  }

  #set(credential: FollowedCredential): void {
    const { accountId } = credential
    const key = credentialKey(credential)
    if (!this.#credentials.has(key)) {
      this.#accounts.set(accountId, (this.#accounts.get(accountId) ?? 0) + 1)
    }
    this.#credentials.set(key, credential)
  }

  #remove(name: CredentialName): void {
    const { accountId } = name
    if (!this.#credentials.delete(credentialKey(name))) {
      return
    }
    const left = (this.#accounts.get(accountId) ?? 0) - 1
    if (left > 0) {
      this.#accounts.set(accountId, left)
    } else {
      this.#accounts.delete(accountId)
    }
  }

  #addRevocation(revocation: Revocation): void {
    const key = revocationKey(revocation)
    if (!this.#revocationKeys.has(key)) {
      this.#revocationKeys.add(key)
      this.revocations.add(revocation)
    }
  }
}

async function eachInTurns<T>(list: readonly T[], use: (entry: T) => void): Promise<void> {
  for (const [index, entry] of list.entries()) {
    if (index % ENTRIES_PER_TURN === ENTRIES_PER_TURN - 1) {
      await nextTurn()
    }
    use(entry)
  }
}
