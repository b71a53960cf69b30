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

export type Login = CredentialName & { readonly secret: string }

export interface CredentialSource {
  readonly list: () => CredentialList
  /**
   * Called before each login. False if the database cannot be asked whether the list is as new as the call.
   */
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
  /** That of the secret. */
  readonly secretHash: string
  /** The secret was the one before the last rotation. */
  readonly usedPreviousSecret: boolean
}

const REJECTED = { outcome: 'rejected' } as const

/**
 * Whether a credential may log in, beyond what its list says.
 * Otherwise its right secret is `rejected` as a wrong one is, after the same time.
 */
export type MayLogIn = (credential: Credential) => boolean

/** Where a login comes from. */
export interface LoginOrigin {
  /** The /24 or /64 of the client. Networks share the hashing queue. */
  readonly network: string
  readonly hasLeft: () => boolean
}

export interface CredentialChecks {
  /** Never rejects. */
  authenticate(login: Login, origin: LoginOrigin, mayLogIn?: MayLogIn): Promise<LoginVerdict>
  /** For logs, which name only accounts that exist: any other name is text that the client chose. */
  hasAccount(accountId: string): boolean
  /** For logs, too. */
  hasCredential(accountId: string, accessKey: string): boolean
  /**
   * Returns the account of the one credential that has this access key.
   * Undefined if none has it, or several have.
   */
  accountOf(accessKey: string): string | undefined
  /**
   * Called for each token that is not cached, and at each login.
   * Reads the active version of the file or database.
   */
  credentialStatus(accountId: string, accessKey: string): CredentialStatus
  /**
   * Returns the status of an earlier login: that of its credential while the secret of this hash logs in.
   */
  loginStatus(name: CredentialName, secretHash: string): CredentialStatus
}

type LoginAttempt = Readonly<{ login: Login; mayLogIn: MayLogIn | undefined }>

/** The usable hashes of a credential: the `slow` ones use scrypt. */
function hashesOf(credential: Credential | undefined, now: number) {
  const hashes = credential === undefined ? [] : usableHashes(credential, now)
  return {
    fast: hashes.filter((hash) => scryptPrefixOf(hash) === undefined),
    slow: hashes.filter((hash) => scryptPrefixOf(hash) !== undefined),
  }
}

/**
 * Every failed login takes the same time: once any credential uses scrypt, one scrypt run,
 * and a second one if the credential has two secrets that use it.
 */
export function createCredentialChecks(
  { list: credentials, refresh }: CredentialSource,
  now: () => number,
  onError?: (error: unknown) => void,
): CredentialChecks {
  const dummySha256 = dummyHash('$sha256')
  const queue = new HashingQueue()

  /** The credential may have changed while its hash was computed. */
  function acceptIfCurrent({ login, mayLogIn }: LoginAttempt, hash: string): AcceptedLogin | undefined {
    const credential = credentials().find(login)
    if (credential === undefined || !isActive(credential, now())) {
      return undefined
    }
    const isUsable = usableHashes(credential, now()).includes(hash)
    if (!isUsable || mayLogIn?.(credential) === false) {
      return undefined
    }
    const usedPreviousSecret = hash !== credential.secretHash
    return { outcome: 'accepted', credential, secretHash: hash, usedPreviousSecret }
  }

  /** Computes all hashes of a login that fails, also with the right secret of a disabled credential. */
  async function checkHashes(attempt: LoginAttempt, hashes: readonly string[]) {
    for (const hash of hashes) {
      const matches = await verifySecret(attempt.login.secret, hash)
      const accepted = matches ? acceptIfCurrent(attempt, hash) : undefined
      if (accepted !== undefined) {
        return accepted
      }
    }
    return undefined
  }

  async function verifyLogin(attempt: LoginAttempt, origin: LoginOrigin): Promise<LoginVerdict> {
    const { login } = attempt
    if (!(await refresh())) {
      return { outcome: 'unavailable' }
    }
    const list = credentials()
    const { fast, slow } = hashesOf(list.find(login), now())
    const accepted = await checkHashes(attempt, fast.length === 0 ? [dummySha256] : fast)
    if (accepted !== undefined) {
      return accepted
    }
    const parameters = list.scryptParametersFor(login)
    if (parameters === undefined) {
      return REJECTED
    }
    return checkInQueue(attempt, slow.length === 0 ? [dummyHash(parameters)] : slow, origin)
  }

  async function checkInQueue(attempt: LoginAttempt, hashes: readonly string[], origin: LoginOrigin) {
    const verdict = await queue.run<LoginVerdict>(origin.network, async () => {
      if (origin.hasLeft()) {
        return { outcome: 'abandoned' }
      }
      return (await checkHashes(attempt, hashes)) ?? REJECTED
    })
    return verdict === 'busy' ? ({ outcome: 'busy' } as const) : verdict
  }

  return {
    async authenticate(login, origin, mayLogIn) {
      try {
        const verdict = await verifyLogin({ login, mayLogIn }, origin)
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
      const credential = credentials().find(name)
      if (credential === undefined || !isActive(credential, now())) {
        return { active: false }
      }
      if (!usableHashes(credential, now()).includes(secretHash)) {
        return { active: false }
      }
      const isPrevious = secretHash !== credential.secretHash
      const secretEndsAtMs = isPrevious ? credential.previousSecretExpiresAtMs : undefined
      const endsAtMs = Math.min(credential.expiresAtMs, secretEndsAtMs ?? Number.POSITIVE_INFINITY)
      return { active: true, endsAtMs, scope: credential.scope }
    },
  }
}
