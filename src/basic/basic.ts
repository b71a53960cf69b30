/**
 * HTTP Basic (RFC 7617), for clients that cannot send a token. The first request with a name and a secret is
 * a login. It is cached for `basic.cacheSeconds`, so that the secret is not hashed for every request.
 * In: the value of `Authorization`. Out: a caller like that of a token, or why the login is refused.
 * Refused logins are not cached: the client may correct its secret a second later.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { ERRORS } from '../base/errors.ts'
import { failed, ok } from '../base/result.ts'
import { clientNetwork } from '../client/client-address.ts'
import type { CredentialChecks } from '../credentials/credential-checks.ts'
import type { Credential, CredentialName } from '../credentials/credential-list.ts'
import type { LoginClient, LoginRefusal, LoginService } from '../endpoints/login-service.ts'
import { credentialOfUser } from '../endpoints/user-name.ts'
import type { BasicLogins, BasicVerdict, RefusedLogin } from '../gate/basic-logins.ts'
import { type BasicCredentials, parseBasicAuthorization } from '../http/basic-authorization.ts'
import type { Caller, CallerOptions, IsRevoked, RevocableToken } from '../token/caller.ts'
import { callerOf } from '../token/caller.ts'
import { parseStoredScope } from '../token/scopes.ts'
import { LoginKeys } from './login-keys.ts'
import { SharedChecks } from './shared-checks.ts'

export interface BasicOptions extends Pick<CallerOptions, 'signAssertions' | 'now'> {
  /** For how long a login is remembered. */
  readonly cacheSeconds: number
  readonly maxLogins: number
  /** `limits.headerBytes`. */
  readonly headerBytes: number
  /** The sidecar's own, for revocations. */
  readonly issuer: string
  readonly logins: LoginService
  readonly credentials: Pick<CredentialChecks, 'loginStatus'>
  readonly isRevoked: IsRevoked
}

/** A login that was accepted. */
interface Login extends CredentialName {
  readonly tokenId: string
  readonly issuedAtSeconds: number
  /** That of the secret. */
  readonly secretHash: string
  /** Epoch milliseconds. The login may end earlier, with its credential or its secret. */
  readonly endsAtMs: number
}

type Accepted = Extract<BasicVerdict, { ok: true }>

const REFUSED = failed<RefusedLogin>({ reason: 'credentials' })

/**
 * The same wrong secret within this time is one failed login: a browser sends the requests of a page
 * side by side, and asks its user once.
 */
const REFUSAL_DELAY_MS = 100

export class Basic implements BasicLogins {
  readonly #options: BasicOptions
  readonly #callerOptions: CallerOptions
  readonly #issuer: string
  readonly #lifetimeMs: number
  readonly #keys: LoginKeys
  readonly #remembered: LRUCache<string, Accepted>
  readonly #loginOf = new WeakMap<Caller, Login>()
  readonly #checks = new SharedChecks<BasicVerdict>()
  #clears = 0

  constructor(options: BasicOptions) {
    const { cacheSeconds, maxLogins, headerBytes, issuer, signAssertions, now } = options
    this.#options = options
    this.#callerOptions = { signAssertions, maxAgeSeconds: cacheSeconds, now }
    this.#issuer = issuer
    this.#lifetimeMs = cacheSeconds * 1000
    this.#keys = new LoginKeys(headerBytes)
    this.#remembered = new LRUCache({ max: maxLogins })
  }

  find(authorization: string): BasicVerdict | undefined {
    const presented = parseBasicAuthorization(authorization)
    if (presented === undefined) {
      return REFUSED
    }
    const accepted = this.#remembered.get(this.#keys.keyOf(presented))
    return accepted !== undefined && this.#isFresh(accepted.value) ? accepted : undefined
  }

  /** Called after `find` has returned undefined. Rejects only on an internal error. */
  async logIn(client: LoginClient, authorization: string): Promise<BasicVerdict> {
    const presented = parseBasicAuthorization(authorization)
    if (presented === undefined) {
      return REFUSED
    }
    const key = this.#keys.keyOf(presented)
    const remembered = this.#remembered.get(key)?.value
    if (remembered !== undefined && this.#lives(remembered)) {
      return this.#checks.run(key, client, () => this.#renew(key, remembered))
    }
    this.#remembered.delete(key)
    // A client of another address may be throttled, or not.
    const keyOfAddress = `${key} ${clientNetwork(client.req.clientAddress)}`
    return this.#checks.run(keyOfAddress, client, (first) => this.#check(first, presented, key))
  }

  async checkAgain(caller: Caller): Promise<BasicVerdict> {
    const login = this.#loginOf.get(caller)
    if (login === undefined) {
      return REFUSED
    }
    const nowMs = this.#options.now()
    // A client would log in again after the end of its login, so only the end of its credential or secret
    // is a refusal.
    const endsAtMs = nowMs < login.endsAtMs ? login.endsAtMs : nowMs + this.#lifetimeMs
    return this.#callerOf({ ...login, endsAtMs })
  }

  clear(): void {
    this.#clears++
    this.#remembered.clear()
  }

  /** The assertions of a caller that is not fresh, but lives, must be renewed. */
  #isFresh(caller: Caller): boolean {
    return this.#isAhead(caller.recheckAtMs) && !this.#isRevoked(caller.identity)
  }

  #lives(caller: Caller): boolean {
    return this.#isAhead(caller.validUntilMs) && !this.#isRevoked(caller.identity)
  }

  /** A time that is further away than a login lasts shows that the clock has been set back. */
  #isAhead(timeMs: number): boolean {
    const leftMs = timeMs - this.#options.now()
    return leftMs > 0 && leftMs <= this.#lifetimeMs
  }

  #isRevoked(identity: RevocableToken): boolean {
    return this.#options.isRevoked(identity, this.#issuer)
  }

  async #renew(key: string, caller: Caller): Promise<BasicVerdict> {
    const verdict = await this.checkAgain(caller)
    this.#remember(key, verdict)
    return verdict
  }

  async #check(client: LoginClient, presented: BasicCredentials, key: string): Promise<BasicVerdict> {
    const { logins } = this.#options
    const login = { ...credentialOfUser(presented.name, logins), secret: presented.secret }
    const grant = async (credential: Credential, secretHash: string) => {
      const verdict = await this.#callerOf(this.#newLogin(credential, secretHash))
      this.#remember(key, verdict)
      return verdict.ok ? verdict : failed(ERRORS.basicAuthenticationFailed)
    }
    // A revocation without `issuedBefore` is for new logins, too.
    const mayLogIn = (credential: Credential) => !this.#isRevoked(this.#newLogin(credential))
    const result = await logins.logIn(client, login, 'basic', grant, mayLogIn)
    if (result.ok) {
      return result
    }
    const refused = refusalOf(result.error)
    if (refused.reason === 'credentials') {
      await sleep(REFUSAL_DELAY_MS)
    }
    return failed(refused)
  }

  #newLogin({ accountId, accessKey }: CredentialName, secretHash = ''): Login {
    const nowMs = this.#options.now()
    // A fraction of a second, so that a login right after a revocation with `issuedBefore` is not revoked.
    const issuedAtSeconds = nowMs / 1000
    const endsAtMs = nowMs + this.#lifetimeMs
    return { accountId, accessKey, tokenId: randomUUID(), issuedAtSeconds, secretHash, endsAtMs }
  }

  /** Rejects only on an internal error. */
  async #callerOf(login: Login): Promise<BasicVerdict> {
    const { credentials } = this.#options
    const { accountId, accessKey, tokenId, issuedAtSeconds, secretHash } = login
    while (true) {
      const clearsBefore = this.#clears
      const status = credentials.loginStatus(login, secretHash)
      if (!status.active || this.#isRevoked(login)) {
        return REFUSED
      }
      const scope = parseStoredScope(status.scope)
      const validUntilMs = Math.min(login.endsAtMs, status.endsAtMs)
      const expiresAtSeconds = Math.ceil(validUntilMs / 1000)
      const identity = { accountId, accessKey, tokenId, issuedAtSeconds, expiresAtSeconds, scope }
      const verified = { identity, issuer: this.#issuer, link: undefined, validUntilMs }
      const caller = await callerOf(verified, this.#callerOptions)
      // Checks again if keys, credentials or revocations have changed meanwhile.
      if (clearsBefore === this.#clears && !this.#isRevoked(identity)) {
        this.#loginOf.set(caller, login)
        return ok(caller)
      }
    }
  }

  #remember(key: string, verdict: BasicVerdict): void {
    if (verdict.ok) {
      this.#remembered.set(key, verdict)
    } else {
      this.#remembered.delete(key)
    }
  }
}

function refusalOf(refusal: LoginRefusal): RefusedLogin {
  switch (refusal.reason) {
    case 'rejected':
    case 'invalid':
      return { reason: 'credentials' }
    case 'busy':
    case 'throttled':
      return { reason: 'unavailable', cause: refusal.reason, retryAfterSeconds: refusal.retryAfterSeconds }
    default:
      return { reason: 'unavailable', cause: refusal.reason }
  }
}
