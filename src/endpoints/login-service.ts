/**
 * Authenticates every login: of the token endpoint, and of other ways to present an access key and a secret.
 * All ways share one store, one throttle and one hashing queue.
 * Each login has one audit line, and is counted once.
 * In: names and a secret. Out: what `grant` makes of the accepted credential, or why the login is refused.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { LoginFailure, PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { clientNetwork } from '../client/client-address.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { AcceptedLogin, CredentialChecks, Login, MayLogIn } from '../credentials/credential-checks.ts'
import type { Credential } from '../credentials/credential-list.ts'
import type { LoginThrottle } from '../credentials/login-throttle.ts'
import type { Identity } from '../token/caller.ts'
import type { RecordEvent } from './api-events.ts'

/** How the client presents its secret. */
export type LoginMethod = 'token' | 'basic' | 'oauth'

/**
 * Why a login is refused. Every `rejected` login must get the same response.
 *   rejected              the names, the secret or the state of the credential
 *   busy, throttled       the client may try again after `retryAfterSeconds`
 *   unavailable           the store of credentials cannot be asked
 *   invalid               the credential is accepted, but `grant` has refused the rest of the request
 *   abandoned             the client has left: no response is sent
 */
export type LoginRefusal =
  | { readonly reason: 'rejected' | 'unavailable' | 'abandoned' }
  | { readonly reason: 'busy' | 'throttled'; readonly retryAfterSeconds?: number | undefined }
  | { readonly reason: 'invalid'; readonly error: PublicError }

/** What a login gives: a token, or an identity. The audit line names its token id. */
interface Granted {
  readonly identity: Identity
}

type Grant<T extends Granted> = (
  credential: Credential,
  secretHash: string,
) => Promise<Result<T, PublicError>>

/** The client that logs in: its request, and whether it has left. */
export type LoginClient = Pick<SidecarResponse, 'req' | 'destroyed'>

interface LoginServiceOptions {
  readonly credentials: CredentialChecks
  readonly throttle: LoginThrottle
  readonly recordEvent: RecordEvent
}

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins/s and starved token checks. */
const RETRY_DELAY_MS = 250

export class LoginService {
  readonly #options: LoginServiceOptions

  constructor(options: LoginServiceOptions) {
    this.#options = options
  }

  /**
   * Returns the account of the one credential that has this access key.
   * Undefined if none has it, or several have.
   */
  accountOf(accessKey: string): string | undefined {
    return this.#options.credentials.accountOf(accessKey)
  }

  /**
   * Rejects only on an internal error, or if `grant` rejects.
   * @param grant - called for an accepted credential only
   */
  async logIn<T extends Granted>(
    client: LoginClient,
    login: Login,
    method: LoginMethod,
    grant: Grant<T>,
    mayLogIn?: MayLogIn,
  ): Promise<Result<T, LoginRefusal>> {
    const accepted = await this.authenticate(client, login, method, mayLogIn)
    if (!accepted.ok) {
      return accepted
    }
    const { credential, secretHash, usedPreviousSecret } = accepted.value
    const granted = await grant(credential, secretHash).catch((error: unknown) => {
      this.#recordFailure(client, method, 'internal')
      throw error
    })
    if (!granted.ok) {
      this.#recordFailure(client, method, 'invalid')
      return failed({ reason: 'invalid', error: granted.error })
    }
    client.req.context.recordIdentity(granted.value.identity)
    this.#options.recordEvent(client.req, { event: 'login', method, usedPreviousSecret })
    return granted
  }

  /**
   * Authenticates a client without giving it a token. Only a failure has an audit line.
   * Rejects as `logIn` does.
   */
  async authenticate(
    client: LoginClient,
    login: Login,
    method: LoginMethod,
    mayLogIn?: MayLogIn,
  ): Promise<Result<AcceptedLogin, LoginRefusal>> {
    const result = await this.#check(client, login, mayLogIn).catch((error: unknown) => {
      this.#recordFailure(client, method, 'internal')
      throw error
    })
    if (result.ok || result.error.reason === 'abandoned') {
      return result
    }
    const { reason } = result.error
    this.#recordFailure(client, method, reason)
    if (reason === 'busy' || reason === 'throttled') {
      await sleep(RETRY_DELAY_MS)
    }
    return result
  }

  async #check(
    client: LoginClient,
    login: Login,
    mayLogIn: MayLogIn | undefined,
  ): Promise<Result<AcceptedLogin, LoginRefusal>> {
    const { credentials, throttle } = this.#options
    const { context, clientAddress } = client.req
    const { accountId } = login
    if (credentials.hasAccount(accountId)) {
      context.recordIdentity({ accountId })
    }
    const address = clientNetwork(clientAddress)
    const origin = { network: subnetOf(address), hasLeft: () => client.destroyed }
    const verdict = await throttle(login, address, async () =>
      client.destroyed ? { outcome: 'abandoned' } : credentials.authenticate(login, origin, mayLogIn),
    )
    // A login with two readings may be that of another credential than its names.
    const named = verdict.outcome === 'accepted' ? verdict.credential : login
    if (credentials.hasCredential(named.accountId, named.accessKey)) {
      context.recordIdentity({ accountId: named.accountId, accessKey: named.accessKey })
    }
    switch (verdict.outcome) {
      case 'accepted':
        return ok(verdict)
      case 'throttled':
        return failed({ reason: 'throttled', retryAfterSeconds: verdict.retryAfterSeconds })
      default:
        return failed({ reason: verdict.outcome })
    }
  }

  #recordFailure({ req }: LoginClient, method: LoginMethod, reason: LoginFailure): void {
    this.#options.recordEvent(req, { event: 'login_failed', method, reason })
  }
}

/** Returns the /24 of an IPv4 address. `clientNetwork` has already turned an IPv6 address into its /64. */
const subnetOf = (address: string): string => address.replace(/^(\d+\.\d+\.\d+)\.\d+$/, '$1.0/24')
