/**
 * Checks logins against the current credentials, wherever these are kept.
 * A failed login takes the same time whatever it failed on: one SHA-256, and once any credential uses scrypt exactly one
 * scrypt run on top, for an unknown account too. scrypt runs one at a time behind a short queue.
 */
import { createHmac, randomBytes } from 'node:crypto'
import ipaddr from 'ipaddr.js'
import pLimit from 'p-limit'
import { type CredentialIndex, type CredentialName, isActive } from './credential.ts'
import { dummyHash, parseSecretHash, type ScryptHash, verifyScrypt, verifySha256 } from './secret-hash.ts'

/** The three fields of a login, exactly as sent. */
export interface Login extends CredentialName {
  readonly secret: string
}

/**
 * `rejected` covers unknown account, unknown key, wrong secret, disabled and expired credential: the client must not
 * tell them apart. `busy`: the scrypt queue is full. `unavailable`: the store cannot be read, or scrypt failed.
 */
export type LoginVerdict = 'accepted' | 'rejected' | 'busy' | 'unavailable'

/** Whether tokens of a credential are valid, and until when (epoch seconds; `Infinity` when it never expires). */
export type CredentialStatus = { readonly active: true; readonly until: number } | { readonly active: false }

export interface CredentialStore {
  /** Checks a login; never rejects. @param address - the client's; clients share the scrypt queue fairly */
  authenticate(login: Login, address?: string): Promise<LoginVerdict>
  /** Whether the account exists: a log names only those, because any other name is text of the client's choice. */
  hasAccount(accountId: string): boolean
  /** Looks a credential up by name; called for each token that is verified anew. */
  standing(accountId: string, accessKey: string): CredentialStatus
}

export interface CredentialStoreOptions {
  /** The current credentials; called for each login and lookup, and again after scrypt. */
  readonly credentials: () => CredentialIndex
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Called with the cause when a login ends `unavailable`. */
  readonly onFault?: (cause: unknown) => void
}

export function createCredentialStore({
  credentials,
  now,
  onFault,
}: CredentialStoreOptions): CredentialStore {
  const noCredential = dummyHash('$sha256')
  const drawingKey = randomBytes(32)
  const queue = createScryptQueue()

  /**
   * The dummy hash of a login without an scrypt credential. Where parameters differ, the name decides by a keyed hash:
   * a fixed choice would let accounts with other parameters stand out, a random one would show on repetition.
   */
  function dummyFor({ accountId, accessKey }: Login, parameters: readonly string[]): string | undefined {
    const drawn = createHmac('sha256', drawingKey)
      .update(JSON.stringify([accountId, accessKey]))
      .digest()
    const prefix = parameters[drawn.readUInt32BE() % parameters.length]
    return prefix && dummyHash(prefix)
  }

  /** Whether the credential still exists with this hash and is active. */
  function isCurrent(login: Login, secretHash: string): boolean {
    const newest = credentials().find(login)
    return newest !== undefined && newest.secretHash === secretHash && isActive(newest, now())
  }

  async function check(login: Login, address: string): Promise<LoginVerdict> {
    const index = credentials()
    const own = index.find(login)?.secretHash
    const fastText = own?.startsWith('$sha256$') ? own : noCredential
    const fast = parseSecretHash(fastText)
    // Looked up in any case: the right secret of a disabled credential takes the time of any failure.
    const usable = isCurrent(login, fastText)
    if (typeof fast === 'string' || fast.scheme !== 'sha256')
      throw new Error('a stored hash cannot be parsed')
    if (verifySha256(login.secret, fast) && usable) return 'accepted'
    const slowText = own?.startsWith('$scrypt$') ? own : dummyFor(login, index.scryptParameters())
    if (slowText === undefined) return 'rejected'
    const slow = parseSecretHash(slowText)
    if (typeof slow === 'string' || slow.scheme !== 'scrypt')
      throw new Error('a stored hash cannot be parsed')
    const matches = await queue.verify(clientNetwork(address), login.secret, slow)
    if (matches === 'busy') return 'busy'
    return matches && isCurrent(login, slowText) ? 'accepted' : 'rejected'
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
    hasAccount: (accountId) => credentials().hasAccount(accountId),
    standing(accountId, accessKey) {
      const credential = credentials().find({ accountId, accessKey })
      if (credential === undefined || !isActive(credential, now())) return { active: false }
      return { active: true, until: credential.expiresAt / 1000 }
    },
  }
}

/** One running and 16 waiting, at about 0.2 s each: the longest that a client should wait. */
const MAX_JOBS = 17

/**
 * Runs scrypt one at a time: jose verifies tokens on the same four threads of libuv's pool, and with 40 runs at once a
 * verification waited 6.5 s. A client may hold as many places as are free, so a flood from one network takes half of
 * them and leaves room for others.
 */
function createScryptQueue() {
  const limit = pLimit(1)
  const jobsOf = new Map<string, number>()
  let jobs = 0
  return {
    async verify(client: string, secret: string, hash: ScryptHash): Promise<boolean | 'busy'> {
      const own = jobsOf.get(client) ?? 0
      if (own >= MAX_JOBS - jobs) return 'busy'
      jobs++
      jobsOf.set(client, own + 1)
      try {
        return await limit(verifyScrypt, secret, hash)
      } finally {
        jobs--
        const left = (jobsOf.get(client) ?? 1) - 1
        if (left > 0) jobsOf.set(client, left)
        else jobsOf.delete(client)
      }
    },
  }
}

/**
 * Maps a client address to the key under which its logins are counted; a text that is no IP address is its own key.
 * One machine with IPv6 usually owns a /64 (RFC 7421), so a /64 is one client; an IPv4 address, plain or mapped, is one.
 */
export function clientNetwork(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  // Behind NAT64 (RFC 6052) the last 32 bits are an IPv4 address: the /64 is the whole internet.
  if (parsed.kind() === 'ipv4' || parsed.range() === 'rfc6052') return parsed.toNormalizedString()
  return `${new ipaddr.IPv6(parsed.toByteArray().fill(0, 8)).toNormalizedString()}/64`
}
