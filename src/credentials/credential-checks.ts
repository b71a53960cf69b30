/** Checks the secret of a login, and the status of the credential of a token. */
import type { CredentialStatus } from '../token/issuers.ts'
import { type CredentialList, type CredentialName, isActive } from './credential-list.ts'
import { createScryptQueue, dummyHash, scryptPrefixOf, verifySecret } from './secret-hash.ts'

export type Login = CredentialName & { readonly secret: string }

export interface CredentialSource {
  readonly list: () => CredentialList
  /** Called before each login. False if the database cannot be asked whether the list is as new as the call. */
  readonly refresh: () => Promise<boolean>
}

/** `rejected`: the client gets no reason. `busy`: the scrypt queue is full. `unavailable`: database or scrypt failed. */
export type LoginVerdict = 'accepted' | 'rejected' | 'busy' | 'unavailable'

export interface CredentialChecks {
  /** Never rejects. @param network - the client's network. Networks share the scrypt queue */
  authenticate(login: Login, network?: string): Promise<LoginVerdict>
  /** For logs, which name only accounts that exist: any other name is text that the client chose. */
  hasAccount(accountId: string): boolean
  /** Called for each token that is not cached, and at each login. Reads the active version of the file or database. */
  credentialStatus(accountId: string, accessKey: string): CredentialStatus
}

/** Every failed login takes the same time: one SHA-256 and, once any credential uses scrypt, exactly one scrypt run. */
export function createCredentialChecks(
  { list: credentials, refresh }: CredentialSource,
  now: () => number,
  onError?: (error: unknown) => void,
): CredentialChecks {
  const dummySha256 = dummyHash('$sha256')
  const verifyInQueue = createScryptQueue()

  function isCurrent(login: Login, secretHash: string): boolean {
    const newest = credentials().find(login)
    return newest !== undefined && newest.secretHash === secretHash && isActive(newest, now())
  }

  async function verifyLogin(login: Login, network: string): Promise<LoginVerdict> {
    if (!(await refresh())) {
      return 'unavailable'
    }
    const list = credentials()
    const storedHash = list.find(login)?.secretHash
    const isScrypt = storedHash !== undefined && scryptPrefixOf(storedHash) !== undefined
    const sha256Hash = storedHash === undefined || isScrypt ? dummySha256 : storedHash
    // Called before the secret is checked: a login with a disabled credential takes the same time with any secret.
    const isUsable = isCurrent(login, sha256Hash)
    if ((await verifySecret(login.secret, sha256Hash)) && isUsable) {
      return 'accepted'
    }
    const parameters = list.scryptParametersFor(login)
    if (parameters === undefined) {
      return 'rejected'
    }
    const scryptHash = isScrypt ? storedHash : dummyHash(parameters)
    const matches = await verifyInQueue(network, login.secret, scryptHash)
    if (matches === 'busy') {
      return 'busy'
    }
    return matches && isCurrent(login, scryptHash) ? 'accepted' : 'rejected'
  }

  return {
    async authenticate(login, network = '') {
      try {
        return await verifyLogin(login, network)
      } catch (error) {
        onError?.(error)
        return 'unavailable'
      }
    },
    hasAccount: (accountId) => credentials().hasAccount(accountId),
    credentialStatus(accountId, accessKey) {
      const credential = credentials().find({ accountId, accessKey })
      if (credential === undefined || !isActive(credential, now())) {
        return { active: false, exists: credential !== undefined }
      }
      return { active: true, endsAtMs: credential.expiresAtMs, scope: credential.scope }
    },
  }
}
