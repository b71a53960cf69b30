/**
 * Finds the credential that a user name of HTTP Basic, or a `client_id` of OAuth, stands for.
 * In: the user name as the client sent it. Out: the names of a credential, which may not exist.
 */
import type { CredentialName } from '../credentials/credential-list.ts'

export interface AccountLookup {
  /**
   * Returns the account of the one credential that has this access key.
   * Undefined if none has it, or several have.
   */
  accountOf(accessKey: string): string | undefined
}

/** Names of accounts hold no control characters, so no account begins with this one. */
const NO_ACCOUNT = '\u0000'

/**
 * The user name is an access key that exactly one credential has, or `accountId~accessKey`, split at
 * the last `~`. Any other user name gets an account of its own that cannot exist,
 * so that its failed logins are bounded, too.
 */
export function credentialOfUser(userName: string, accounts: AccountLookup): CredentialName {
  const owner = accounts.accountOf(userName)
  if (owner !== undefined) {
    return { accountId: owner, accessKey: userName }
  }
  const tilde = userName.lastIndexOf('~')
  const accountId = userName.slice(0, Math.max(tilde, 0))
  const accessKey = userName.slice(tilde + 1)
  if (accountId === '' || accessKey === '') {
    return { accountId: NO_ACCOUNT + userName, accessKey: userName }
  }
  return { accountId, accessKey }
}
