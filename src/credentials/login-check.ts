/**
 * Checks logins against the accounts in force, wherever those are kept.
 *
 * In: a login. Out: a verdict. What always holds: a login that fails takes the same time whatever it failed on.
 * While no secret is hashed with scrypt it costs one SHA-256; once any is, one scrypt run on top, exactly one,
 * also for an unknown account, a disabled credential, and a wrong secret of a credential that needs only
 * SHA-256. And no verdict is older than the accounts: whether a credential is in force is asked after the
 * hashing, of the newest snapshot.
 *
 * @module
 */
import { createHmac, randomBytes } from 'node:crypto'
import { type Accounts, isInForce } from './accounts.ts'
import { clientNetwork } from './client-network.ts'
import type { HashQueue } from './hash-queue.ts'
import { type ScryptHash, scryptDecoy, sha256Decoy, verifyScrypt, verifySha256 } from './secret-hash.ts'
import type { CredentialStore, Login, LoginVerdict } from './store.ts'

/** What a credential store is made of. */
export interface CredentialStoreOptions {
  /** The accounts in force: called for each login and each look-up, and once more after slow hashing. */
  readonly accounts: () => Accounts
  readonly hashQueue: HashQueue
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told why a login ended `unavailable`: a fault of the machine, such as no memory for scrypt. */
  readonly onFault?: (cause: unknown) => void
}

/** Makes a credential store over accounts that may be replaced while it lives. */
export function createCredentialStore(options: CredentialStoreOptions): CredentialStore {
  const { accounts, hashQueue, now, onFault } = options
  const nobodysSecret = sha256Decoy()
  const drawingKey = randomBytes(32)

  /**
   * The scrypt run of a login that has no scrypt credential of its own, at the price of one that somebody else
   * has. Where prices differ, the name decides which, by a keyed hash: were it one fixed price, an account with
   * another would stand out; were it drawn anew each time, repeating a login would show it.
   */
  function decoyFor({ accountId, accessKey }: Login, { scryptCosts }: Accounts): ScryptHash | undefined {
    const drawn = createHmac('sha256', drawingKey)
      .update(JSON.stringify([accountId, accessKey]))
      .digest()
    const cost = scryptCosts[drawn.readUInt32BE() % scryptCosts.length]
    return cost && scryptDecoy(cost)
  }

  /** Whether the credential that was checked is still there, unchanged, and in force. */
  function stillInForce({ accountId, accessKey }: Login, checked: Buffer): boolean {
    const newest = accounts().find(accountId, accessKey)
    return newest?.secretHash.digest.equals(checked) === true && isInForce(newest, now())
  }

  async function check(login: Login, address: string): Promise<LoginVerdict> {
    const before = accounts()
    const own = before.find(login.accountId, login.accessKey)?.secretHash
    const fast = own?.scheme === 'sha256' ? own : nobodysSecret
    // Looked up in any case, for the same time: a right secret of a disabled credential is a failure like others.
    const usable = stillInForce(login, fast.digest)
    if (verifySha256(login.secret, fast) && usable) return 'accepted'

    const slow = own?.scheme === 'scrypt' ? own : decoyFor(login, before)
    if (slow === undefined) return 'rejected'
    const hashed = await hashQueue.run(clientNetwork(address), () => verifyScrypt(login.secret, slow))
    if (!hashed.ran) return 'busy'
    return hashed.result && stillInForce(login, slow.digest) ? 'accepted' : 'rejected'
  }

  return {
    async authenticate(login, address = '') {
      try {
        return await check(login, address)
      } catch (cause) {
        onFault?.(cause)
        return 'unavailable'
      }
    },
    hasAccount: (accountId) => accounts().has(accountId),
    standing(accountId, accessKey) {
      const credential = accounts().find(accountId, accessKey)
      if (credential === undefined || !isInForce(credential, now())) return { inForce: false }
      return { inForce: true, until: credential.expiresAt / 1000 }
    },
  }
}
