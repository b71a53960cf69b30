/**
 * The token endpoint: credentials in exchange for a token, the seconds a token has left, and its end (logout).
 * In: a request on one of its paths. Out: a documented response, byte for byte the same for every rejected login.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import { namesProblem } from '../credentials/names.ts'
import type { CredentialName, CredentialStatus, CredentialStore } from '../credentials/store.ts'
import type { EndedToken, LoginThrottle, Revoked, RevokeToken } from '../credentials/throttles.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Audit, AuditedRequest } from '../ops/audit.ts'
import type { Identity } from '../token/caller.ts'
import type { LoginIdentity } from '../token/issue.ts'
import { coversScope, parseScope, type Scope, validScope } from '../token/scopes.ts'
import { clientNetwork } from './client-address.ts'
import type { IssueFailure, SidecarRequest, SidecarResponse } from './context.ts'
import { invalid, type Refusal } from './json-body.ts'
import { readLogin } from './login-body.ts'
import type { RefusalOptions, Responder } from './respond.ts'

interface TokenEndpointOptions {
  readonly responder: Responder
  /** Absent in a sidecar that only verifies. */
  readonly credentials: CredentialStore | undefined
  readonly canIssue: () => boolean
  readonly throttle: LoginThrottle
  /** Absent where no database has the revocations. */
  readonly revokeToken: RevokeToken | undefined
  readonly issue: (login: LoginIdentity) => Promise<{ readonly token: string; readonly identity: Identity }>
  readonly clientAddress: (req: SidecarRequest) => string
  readonly now: () => number
  readonly contract: Pick<Config['contract'], 'expirationSec' | 'authenticationFailedCode'>
  readonly onIssued: () => void
  readonly onIssueFailure: (reason: IssueFailure) => void
  readonly audit: Pick<Audit, 'request'>
}

type Granted = { readonly ok: true; readonly scope: Scope | undefined } | Refusal

/** That of every field of a login. */
const MAX_ASKED_LENGTH = 1024

const UNAVAILABLE: Revoked = { ok: false, reason: 'unavailable' }

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins a second and starved token checks. */
const RETRY_LATER_DELAY_MS = 250

export class TokenEndpoint {
  readonly #options: TokenEndpointOptions
  /** The same for every rejected login. */
  readonly #rejected: PublicError

  constructor(options: TokenEndpointOptions) {
    this.#options = options
    this.#rejected = { ...ERRORS.authenticationFailed, code: options.contract.authenticationFailedCode }
  }

  /** POST: issues a token. Rejects only on an internal fault. */
  async issue(req: SidecarRequest, res: SidecarResponse): Promise<void> {
    const { credentials, throttle, audit, responder } = this.#options
    const { context } = req
    if (credentials === undefined || !this.#options.canIssue())
      return this.#fail(req, res, 'unavailable', ERRORS.serviceNotReady)
    const read = await readLogin(req, res)
    if (!read.ok) return this.#fail(req, res, 'invalid', read.error)
    const { login, scope: asked } = read
    const { accountId, accessKey } = login
    if (credentials.hasAccount(accountId)) context.identity = { accountId }
    const client = clientNetwork(this.#options.clientAddress(req))
    const { verdict, retryAfterSeconds } = await throttle.attempt(login, client, async () =>
      res.destroyed ? 'busy' : credentials.authenticate(login, client),
    )
    if (verdict === 'unavailable') return this.#fail(req, res, verdict, ERRORS.serviceNotReady)
    const credential = credentials.credentialStatus(accountId, accessKey)
    if (credential.active) context.identity = { accountId, accessKey }
    if (verdict === 'busy' || verdict === 'throttled') {
      if (!res.destroyed) await sleep(RETRY_LATER_DELAY_MS)
      if (res.destroyed) return // the client left while its login waited
      return this.#fail(req, res, verdict, ERRORS.serviceNotReady, { retryAfterSeconds })
    }
    // Not active: disabled a moment ago.
    if (verdict === 'rejected' || !credential.active)
      return this.#fail(req, res, 'rejected', this.#rejected, { errorType: 'http_request_denied' })
    const granted = grant(asked, login, credential)
    if (!granted.ok) return this.#fail(req, res, 'invalid', granted.error)
    const issued = this.#options.issue({ accountId, accessKey, scope: granted.scope })
    const { token, identity } = await issued.catch((fault: unknown) => {
      this.#recordFailure(req, 'internal')
      throw fault
    })
    context.identity = identity
    this.#options.onIssued()
    audit.request(req, { event: 'login' })
    const expirationSec = this.expirationSec(identity.expiresAtSeconds)
    responder.send(req, res, 200, { token, expirationSec })
  }

  /** GET and HEAD. */
  timeLeft(req: SidecarRequest, res: SidecarResponse, { expiresAtSeconds }: Identity): void {
    const expirationSec = this.expirationSec(expiresAtSeconds)
    this.#options.responder.send(req, res, 200, { expirationSec })
  }

  /** DELETE: revokes the token. Rejects only on an internal fault. */
  logout(req: SidecarRequest, res: SidecarResponse, identity: Identity): Promise<void> {
    return this.end(req, res, identity, { event: 'logout' })
  }

  /** Ends a token or a link, and writes `what` to the audit log. Rejects only on an internal fault. */
  async end(
    req: SidecarRequest,
    res: SidecarResponse,
    ended: EndedToken,
    what: AuditedRequest,
  ): Promise<void> {
    const { responder, revokeToken, audit } = this.#options
    const revoked = (await revokeToken?.(ended)) ?? UNAVAILABLE
    if (!revoked.ok) {
      const { reason, retryAfterSeconds } = revoked
      return responder.refuse(req, res, reason, ERRORS.serviceNotReady, { retryAfterSeconds })
    }
    audit.request(req, what)
    responder.send(req, res, 204, undefined)
  }

  /** Any other method, of links too: a CORS preflight of an allowed origin (Fetch standard), or 405. */
  otherMethod(req: SidecarRequest, res: SidecarResponse, allowed: string): void {
    const { responder } = this.#options
    if (req.context.admitted?.preflight === true && responder.allows(req.headers.origin)) {
      responder.send(req, res, 204, undefined, [
        ...['Access-Control-Allow-Methods', allowed],
        ...['Access-Control-Allow-Headers', 'authorization, content-type'],
        ...['Access-Control-Max-Age', '600'],
      ])
    } else {
      responder.refuse(req, res, 'method', ERRORS.methodNotAllowed, { headers: ['Allow', allowed] })
    }
  }

  /** Whole seconds that are really left; 0 within the clock tolerance. */
  expirationSec(expiresAtSeconds: number): number | string {
    const { now, contract } = this.#options
    const left = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
    return contract.expirationSec === 'string' ? String(left) : left
  }

  #fail(
    req: SidecarRequest,
    res: SidecarResponse,
    reason: IssueFailure,
    error: PublicError,
    options?: RefusalOptions,
  ): void {
    this.#recordFailure(req, reason)
    this.#options.responder.refuse(req, res, reason, error, options)
  }

  #recordFailure(req: SidecarRequest, reason: IssueFailure): void {
    this.#options.onIssueFailure(reason)
    this.#options.audit.request(req, { event: 'login_failed', reason })
  }
}

/** What a login gets: what it asks for within what its credential may do, or all of that. */
function grant(
  asked: string | undefined,
  { accountId, accessKey }: CredentialName,
  credential: Extract<CredentialStatus, { active: true }>,
): Granted {
  const own = validScope(credential.scope)
  if (asked === undefined) return { ok: true, scope: own }
  const read = asked.length > MAX_ASKED_LENGTH ? undefined : parseScope(asked)
  if (read?.ok !== true)
    return invalid(`scope ${read?.problem ?? `must have at most ${MAX_ASKED_LENGTH} characters`}.`)
  if (own !== undefined && !coversScope(own, read.scope))
    return invalid('scope has an item that the credential does not cover.')
  const isTooLong = namesProblem(accountId, accessKey, asked) !== undefined
  return isTooLong ? invalid('scope is too long for a token with these names.') : read
}
