/**
 * Credentials: their index, the status that token checks ask for, and the check of logins. Every failed login takes the
 * same time: one SHA-256 and, once any credential uses scrypt, exactly one scrypt run, for an unknown account too.
 */
import { createHmac } from 'node:crypto'
import pLimit from 'p-limit'
import type { CredentialStatus } from '../token/issuers.ts'
import { dummyHash, verifySecret } from './secret-hash.ts'

export interface CredentialName {
  readonly accountId: string
  readonly accessKey: string
}

export interface Credential extends CredentialName {
  /** As `hashSecret` writes it. */
  readonly secretHash: string
  /** Epoch milliseconds; `Infinity` when it never expires. */
  readonly expiresAt: number
  readonly disabled: boolean
  /** As text; undefined or, from PostgreSQL, null: unrestricted. */
  readonly scope?: string | null | undefined
}

/** Credentials by name. A reload replaces the index, so a login sees one version of all credentials. */
export class CredentialIndex {
  readonly #accounts = new Set<string>()
  readonly #byName = new Map<string, Credential>()
  readonly #scryptParameters = new Set<string>()
  /** Secret by its salt, the same in all processes, and the same after most changes. */
  #smallestScryptHash: string | undefined

  constructor(credentials: Iterable<Credential> = []) {
    for (const credential of credentials) this.add(credential)
  }

  add(credential: Credential): void {
    const { accountId, secretHash } = credential
    this.#accounts.add(accountId)
    this.#byName.set(keyOf(credential), credential)
    if (!secretHash.startsWith('$scrypt$')) return
    this.#scryptParameters.add(secretHash.slice(0, secretHash.indexOf('$', '$scrypt$'.length)))
    const smallest = this.#smallestScryptHash
    if (smallest === undefined || secretHash < smallest) this.#smallestScryptHash = secretHash
  }

  get size(): number {
    return this.#byName.size
  }

  /** In the order in which they were added. */
  list(): readonly Credential[] {
    return [...this.#byName.values()]
  }

  hasAccount(accountId: string): boolean {
    return this.#accounts.has(accountId)
  }

  find(name: CredentialName): Credential | undefined {
    return this.#byName.get(keyOf(name))
  }

  /**
   * What a login costs that has no scrypt hash: parameters of those in use, such as `$scrypt$ln=14,r=8,p=5`. A fixed
   * choice would single out accounts with other parameters; one that differs between attempts or workers, too.
   */
  scryptParametersFor({ accountId, accessKey }: CredentialName): string | undefined {
    if (this.#smallestScryptHash === undefined) return undefined
    const name = JSON.stringify([accountId, accessKey])
    const drawn = createHmac('sha256', this.#smallestScryptHash).update(name).digest().readUInt32BE()
    return [...this.#scryptParameters].sort()[drawn % this.#scryptParameters.size]
  }
}

/** Names hold no control characters, so U+0001 between them keeps pairs apart. */
function keyOf({ accountId, accessKey }: CredentialName): string {
  return `${accountId}\u0001${accessKey}`
}

/** @param now - epoch milliseconds */
export function isActive({ disabled, expiresAt }: Credential, now: number): boolean {
  return !disabled && now < expiresAt
}

export interface Login extends CredentialName {
  readonly secret: string
}

/** `rejected`: the client must not learn why. `busy`: too many logins wait. `unavailable`: store or scrypt failed. */
export type LoginVerdict = 'accepted' | 'rejected' | 'busy' | 'unavailable'

/** The state of the check `credentials` while the database does not respond. */
export const DATABASE_DOWN = 'database down, last snapshot active'

export interface CredentialStore {
  /** Never rejects. @param client - the network of its address: networks share the scrypt queue fairly */
  authenticate(login: Login, client?: string): Promise<LoginVerdict>
  /** Whether the account exists: a log names only those, because any other name is text of the client's choice. */
  hasAccount(accountId: string): boolean
  credentialStatus(accountId: string, accessKey: string): CredentialStatus
}

export interface CredentialStoreOptions {
  readonly credentials: () => CredentialIndex
  /** Epoch milliseconds. */
  readonly now: () => number
  /** A login ended `unavailable`. */
  readonly onFault?: (cause: unknown) => void
}

export function createCredentialStore({
  credentials,
  now,
  onFault,
}: CredentialStoreOptions): CredentialStore {
  const dummySha256 = dummyHash('$sha256')
  const verifyInQueue = createScryptQueue()

  function isCurrent(login: Login, secretHash: string): boolean {
    const newest = credentials().find(login)
    return newest !== undefined && newest.secretHash === secretHash && isActive(newest, now())
  }

  async function check(login: Login, client: string): Promise<LoginVerdict> {
    const index = credentials()
    const storedHash = index.find(login)?.secretHash
    const sha256Hash = storedHash?.startsWith('$sha256$') ? storedHash : dummySha256
    // Always looked up: the right secret of a disabled credential takes the time of any failure.
    const isUsable = isCurrent(login, sha256Hash)
    if ((await verifySecret(login.secret, sha256Hash)) && isUsable) return 'accepted'
    const parameters = index.scryptParametersFor(login)
    if (parameters === undefined) return 'rejected'
    const scryptHash = storedHash?.startsWith('$scrypt$') ? storedHash : dummyHash(parameters)
    const matches = await verifyInQueue(client, login.secret, scryptHash)
    if (matches === 'busy') return 'busy'
    return matches && isCurrent(login, scryptHash) ? 'accepted' : 'rejected'
  }

  return {
    async authenticate(login, client = '') {
      try {
        return await check(login, client)
      } catch (cause) {
        onFault?.(cause)
        return 'unavailable'
      }
    },
    hasAccount: (accountId) => credentials().hasAccount(accountId),
    credentialStatus(accountId, accessKey) {
      const credential = credentials().find({ accountId, accessKey })
      if (credential === undefined || !isActive(credential, now())) return { active: false }
      const { expiresAt, scope } = credential
      return { active: true, until: expiresAt / 1000, scope }
    },
  }
}

/** One running and 16 waiting: a wait of about 3 s. */
const MAX_JOBS = 17

/**
 * Runs scrypt one at a time: jose verifies tokens on the same four threads of libuv's pool, and with 40 runs at once a
 * token waited 6.5 s. A network may have as many jobs as there are free slots, which is at most half of the queue.
 */
function createScryptQueue() {
  const limit = pLimit(1)
  const jobsOf = new Map<string, number>()
  return async (client: string, secret: string, hash: string): Promise<boolean | 'busy'> => {
    const own = jobsOf.get(client) ?? 0
    if (own >= MAX_JOBS - limit.activeCount - limit.pendingCount) return 'busy'
    jobsOf.set(client, own + 1)
    try {
      return await limit(verifySecret, secret, hash)
    } finally {
      const left = (jobsOf.get(client) ?? 1) - 1
      if (left > 0) jobsOf.set(client, left)
      else jobsOf.delete(client)
    }
  }
}
