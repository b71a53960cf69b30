/**
 * What the rest of the sidecar knows of credentials, whatever keeps them.
 *
 * @module
 */

/** The three fields of a login, exactly as sent: no trimming, no normalisation. */
export interface Login {
  readonly accountId: string
  readonly accessKey: string
  readonly secret: string
}

/**
 * How a login ended. `rejected` covers unknown account, unknown key, wrong secret, disabled and expired
 * credential: nobody outside may tell them apart. `busy` is a full queue, `unavailable` a store that
 * cannot be asked.
 */
export type LoginVerdict = 'accepted' | 'rejected' | 'busy' | 'unavailable'

/**
 * Whether tokens of a credential are in force.
 * `until`: epoch seconds at which the credential expires; `Infinity` when it never does.
 */
export type Standing = { readonly inForce: true; readonly until: number } | { readonly inForce: false }

/** A set of credentials: checks logins, and says whether a credential's tokens are still good. */
export interface CredentialStore {
  /**
   * Checks a login in the same time whatever it fails on. Never rejects.
   *
   * @param address - the client's, as text: clients take turns at what is slow; those without one count as one client
   */
  authenticate(login: Login, address?: string): Promise<LoginVerdict>
  /** Whether there is such an account: only then may a log name it, as anything else is text of a stranger's choice. */
  hasAccount(accountId: string): boolean
  /** Looks a credential up by name, without its secret: called for each token that is verified anew. */
  standing(accountId: string, accessKey: string): Standing
}
