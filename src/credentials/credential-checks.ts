/** Checks the secret of a login, and the status of the credential of a token. */
import type { CredentialStatus } from '../token/issuers.ts'
import {
  type Credential,
  type CredentialList,
  type CredentialName,
  isActive,
  usableHashes,
} from './credential-list.ts'
import { HashingQueue } from './hashing-queue.ts'
import { dummyHash, scryptPrefixOf, verifySecret } from './secret-hash.ts'

/** The names of a credential and its secret, as a client has sent them. */
export interface NamedSecret extends CredentialName {
  readonly secret: string
}

export interface Login extends NamedSecret {
  /**
   * A second way to read what the client has sent, tried after the first.
   * For the throttle, both are one attempt with the names of the first.
   */
  readonly otherReading?: NamedSecret | undefined
}

export interface CredentialSource {
  readonly list: () => CredentialList
  /** Called before each login. Resolves to false if the database cannot confirm that the list is current. */
  readonly refresh: () => Promise<boolean>
}

/**
 * `rejected`: the client gets no reason. `busy`: the hashing queue has no place.
 * `unavailable`: database or scrypt failed. `abandoned`: the client left before its secret was hashed.
 */
export type LoginVerdict =
  | AcceptedLogin
  | { readonly outcome: 'rejected' | 'busy' | 'unavailable' | 'abandoned' }

export interface AcceptedLogin {
  readonly outcome: 'accepted'
  readonly credential: Credential
  /** The hash that the secret matches. */
  readonly secretHash: string
  /** Whether the secret is the one before the last rotation. */
  readonly usedPreviousSecret: boolean
}

const REJECTED = { outcome: 'rejected' } as const

/**
 * Whether an active credential may log in. If not, its secret is `rejected` like a wrong one, after the same
 * time.
 */
export type MayLogIn = (credential: Credential) => boolean

/** Where a login comes from. */
export interface LoginOrigin {
  /** The /24 or /64 of the client. Networks share the hashing queue. */
  readonly network: string
  readonly hasLeft: () => boolean
}

/** What can be asked about credentials without a secret: all that a follower of the feed can answer. */
export interface CredentialLookups {
  /** For logs, which name only accounts that exist: any other name is text that the client chose. */
  hasAccount(accountId: string): boolean
  /** For logs, too. */
  hasCredential(accountId: string, accessKey: string): boolean
  /**
   * Called for each token that is not cached, and at each login.
   * Reads the active version of the file, database or feed.
   */
  credentialStatus(accountId: string, accessKey: string): CredentialStatus
}

export interface CredentialChecks extends CredentialLookups {
  /** Never rejects. */
  authenticate(login: Login, origin: LoginOrigin, mayLogIn?: MayLogIn): Promise<LoginVerdict>
  /**
   * Returns the account of the one credential that has this access key.
   * Undefined if none has it, or several have.
   */
  accountOf(accessKey: string): string | undefined
  /** Returns the status of the credential while the secret with this hash is valid, else inactive. */
  loginStatus(name: CredentialName, secretHash: string): CredentialStatus
}

/** One comparison: a secret, and the hash that it may match. */
interface Attempt {
  readonly login: NamedSecret
  readonly hash: string
}

const isSlow = (hash: string) => scryptPrefixOf(hash) !== undefined

const readingsOf = (login: Login): readonly NamedSecret[] =>
  login.otherReading === undefined ? [login] : [login, login.otherReading]

/** Without hashes, the secret is compared with a dummy hash, so that the check takes the same time. */
function attemptsOf(login: NamedSecret, hashes: readonly string[], dummy: string): readonly Attempt[] {
  const compared = hashes.length === 0 ? [dummy] : hashes
  return compared.map((hash) => ({ login, hash }))
}

/**
 * Every failed login takes the same time: once any credential uses scrypt, one scrypt run,
 * and a second one if the credential has two secrets that use it. A login with two readings takes twice that.
 */
export function createCredentialChecks(
  { list: credentials, refresh }: CredentialSource,
  now: () => number,
  onError?: (error: unknown) => void,
): CredentialChecks {
  const dummySha256 = dummyHash('$sha256')
  const unknownCredential: Credential = {
    accountId: '',
    accessKey: '',
    secretHash: dummySha256,
    expiresAtMs: 0,
    disabled: true,
  }
  const queue = new HashingQueue()

  /** Takes the same time for an unknown name. */
  function hashesIn(list: CredentialList, name: CredentialName): readonly string[] {
    return usableHashes(list.find(name) ?? unknownCredential, now())
  }

  /** Returns the credential while it is active and the secret with this hash is valid. */
  function findUsable(name: CredentialName, hash: string): Credential | undefined {
    const credential = credentials().find(name)
    if (credential === undefined || !isActive(credential, now())) {
      return undefined
    }
    return usableHashes(credential, now()).includes(hash) ? credential : undefined
  }

  /** The credential may have changed while its hash was computed. */
  function acceptIfCurrent({ login, hash }: Attempt, mayLogIn?: MayLogIn): AcceptedLogin | undefined {
    const credential = findUsable(login, hash)
    if (credential === undefined || mayLogIn?.(credential) === false) {
      return undefined
    }
    const usedPreviousSecret = hash !== credential.secretHash
    return { outcome: 'accepted', credential, secretHash: hash, usedPreviousSecret }
  }

  /** Computes all hashes of a login that fails, also with the right secret of a disabled credential. */
  async function checkHashes(attempts: readonly Attempt[], mayLogIn?: MayLogIn) {
    for (const attempt of attempts) {
      const matches = await verifySecret(attempt.login.secret, attempt.hash)
      const accepted = matches ? acceptIfCurrent(attempt, mayLogIn) : undefined
      if (accepted !== undefined) {
        return accepted
      }
    }
    return undefined
  }

  async function verifyLogin(login: Login, origin: LoginOrigin, mayLogIn?: MayLogIn): Promise<LoginVerdict> {
    if (!(await refresh())) {
      return { outcome: 'unavailable' }
    }
    const list = credentials()
    const readings = readingsOf(login)
    const fastAttempts = readings.flatMap((reading) => {
      const hashes = hashesIn(list, reading).filter((hash) => !isSlow(hash))
      return attemptsOf(reading, hashes, dummySha256)
    })
    const accepted = await checkHashes(fastAttempts, mayLogIn)
    if (accepted !== undefined) {
      return accepted
    }
    const slowAttempts = readings.flatMap((reading) => {
      const parameters = list.scryptParametersFor(reading)
      const hashes = hashesIn(list, reading).filter(isSlow)
      return parameters === undefined ? [] : attemptsOf(reading, hashes, dummyHash(parameters))
    })
    if (slowAttempts.length === 0) {
      return REJECTED
    }
    return checkInQueue(origin, async () => (await checkHashes(slowAttempts, mayLogIn)) ?? REJECTED)
  }

  async function checkInQueue(
    origin: LoginOrigin,
    check: () => Promise<LoginVerdict>,
  ): Promise<LoginVerdict> {
    const verdict = await queue.run<LoginVerdict>(origin.network, async () =>
      origin.hasLeft() ? { outcome: 'abandoned' } : check(),
    )
    return verdict === 'busy' ? { outcome: 'busy' } : verdict
  }

  return {
    async authenticate(login, origin, mayLogIn) {
      try {
        const verdict = await verifyLogin(login, origin, mayLogIn)
        if (verdict.outcome === 'rejected' || verdict.outcome === 'accepted') {
          queue.onLogin(origin.network, verdict.outcome)
        }
        return verdict
      } catch (error) {
        onError?.(error)
        return { outcome: 'unavailable' }
      }
    },
    hasAccount: (accountId) => credentials().hasAccount(accountId),
    hasCredential: (accountId, accessKey) => credentials().find({ accountId, accessKey }) !== undefined,
    accountOf: (accessKey) => credentials().findByAccessKey(accessKey)?.accountId,
    credentialStatus(accountId, accessKey) {
      const credential = credentials().find({ accountId, accessKey })
      if (credential === undefined || !isActive(credential, now())) {
        return { active: false, exists: credential !== undefined }
      }
      return { active: true, endsAtMs: credential.expiresAtMs, scope: credential.scope }
    },
    loginStatus(name, secretHash) {
      const credential = findUsable(name, secretHash)
      if (credential === undefined) {
        return { active: false }
      }
      const isPrevious = secretHash !== credential.secretHash
      const secretEndsAtMs = isPrevious ? credential.previousSecretExpiresAtMs : undefined
      const endsAtMs = Math.min(credential.expiresAtMs, secretEndsAtMs ?? Number.POSITIVE_INFINITY)
      return { active: true, endsAtMs, scope: credential.scope }
    },
  }
}
