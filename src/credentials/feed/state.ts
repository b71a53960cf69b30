/**
 * The state that a follower has: the credentials and revocations of the last whole state, with all changes
 * that followed.
 */
import { eachInTurns } from '../../base/each-in-turns.ts'
import { addFingerprint, fingerprintOf, subtractFingerprint } from '../../base/fingerprint.ts'
import type { CredentialName } from '../credential-list.ts'
import { type Revocation, RevocationList } from '../revocation-list.ts'
import { credentialKey, type FeedUpdate, type FollowedCredential, revocationKey } from './format.ts'

const ENTRIES_PER_TURN = 200

export class FollowedState {
  #version: string
  readonly #credentials = new Map<string, FollowedCredential>()
  /** How many credentials each account has. */
  readonly #accounts = new Map<string, number>()
  readonly #revocationKeys = new Set<string>()
  #fingerprint = 0
  readonly revocations = new RevocationList()

  private constructor(version: string) {
    this.#version = version
  }

  /** Makes a new state of a whole one. Between parts, requests are served. */
  static async of(update: FeedUpdate): Promise<FollowedState> {
    const state = new FollowedState(update.version)
    const { credentials, revocations } = update
    await eachInTurns(credentials.set, ENTRIES_PER_TURN, (credential) => state.#set(credential))
    await eachInTurns(revocations.set, ENTRIES_PER_TURN, (revocation) => state.#addRevocation(revocation))
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

  /** In no order, for comparisons. */
  entries() {
    return { credentials: [...this.#credentials.values()], revocations: [...this.#revocationKeys] }
  }

  /** Of the credentials. Equal in followers that have the same. */
  get fingerprint(): number {
    return this.#fingerprint
  }

  #set(credential: FollowedCredential): void {
    const { accountId } = credential
    this.#remove(credential)
    this.#accounts.set(accountId, (this.#accounts.get(accountId) ?? 0) + 1)
    this.#credentials.set(credentialKey(credential), credential)
    this.#fingerprint = addFingerprint(this.#fingerprint, fingerprintOfCredential(credential))
  }

  #remove(name: CredentialName): void {
    const key = credentialKey(name)
    const known = this.#credentials.get(key)
    if (known === undefined) {
      return
    }
    this.#credentials.delete(key)
    this.#fingerprint = subtractFingerprint(this.#fingerprint, fingerprintOfCredential(known))
    const left = (this.#accounts.get(name.accountId) ?? 0) - 1
    if (left > 0) {
      this.#accounts.set(name.accountId, left)
    } else {
      this.#accounts.delete(name.accountId)
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

const fingerprintOfCredential = ({ accountId, accessKey, expiresAtMs, scope }: FollowedCredential) =>
  fingerprintOf(accountId, accessKey, expiresAtMs, scope)
