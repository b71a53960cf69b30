/**
 * The token endpoint: issues tokens for credentials, and reports the seconds that a token has left.
 * In: a request. Out: a documented response, byte for byte the same for every rejected login.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { ERRORS, type LoginFailure, type PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { claimsProblem, nameProblem, secretProblem } from '../base/schemas.ts'
import { clientNetwork } from '../client/client-address.ts'
import type { ErrorResponseOptions } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { CredentialChecks, Login } from '../credentials/credential-checks.ts'
import type { LoginThrottle } from '../credentials/throttles.ts'
import type { Identity } from '../token/caller.ts'
import type { CredentialStatus } from '../token/issuers.ts'
import { coversScope, parseScope, parseStoredScope, type Scope } from '../token/scopes.ts'
import { Endpoint, type EndpointOptions } from './endpoint.ts'
import { badArgument, type Members, readJson } from './json-body.ts'

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins/s and starved token checks. */
const RETRY_DELAY_MS = 250

interface TokenEndpointOptions extends EndpointOptions {
  /** Absent without `credentials.file` and without a database. */
  readonly credentials: CredentialChecks | undefined
  readonly throttle: LoginThrottle
}

const NOT_READY = ERRORS.serviceNotReady
const failedLogin = (reason: LoginFailure, error: PublicError, options?: ErrorResponseOptions) =>
  failed({ reason, error, options })

export class TokenEndpoint extends Endpoint<TokenEndpointOptions> {
  /** POST: issues a token. Rejects only on an internal error. */
  async logIn(res: SidecarResponse): Promise<void> {
    const { responder, audit } = this.options
    const auditFailure = (reason: LoginFailure) => audit.request(res.req, { event: 'login_failed', reason })
    const issued = await this.#issueToken(res).catch((error: unknown) => {
      auditFailure('internal')
      throw error
    })
    if (issued.ok) {
      const { token, identity } = issued.value
      audit.request(res.req, { event: 'login' })
      responder.sendJson(res, 200, { token, expirationSec: this.expirationSec(identity.expiresAtSeconds) })
      return
    }
    const { reason, error, options } = issued.error
    if (reason === 'busy' && res.destroyed) return // the client left while its login waited
    auditFailure(reason)
    if (reason === 'busy' || reason === 'throttled') await sleep(RETRY_DELAY_MS)
    responder.fail(res, reason, error, options)
  }

  async #issueToken(res: SidecarResponse) {
    const { config, credentials, throttle, signer } = this.options
    const { context, clientAddress } = res.req
    if (credentials === undefined || !signer.canSign) return failedLogin('unavailable', NOT_READY)
    const body = await readJson(res, config.timeouts.idleSeconds * 1000)
    const fields = body.ok ? readLogin(body.value) : body
    if (!fields.ok) return failedLogin('invalid', fields.error)
    const { login, requestedScope } = fields.value
    const { accountId, accessKey } = login
    if (credentials.hasAccount(accountId)) context.recordIdentity({ accountId })

    const network = clientNetwork(clientAddress)
    const { verdict, retryAfterSeconds } = await throttle(login, network, async () =>
      res.destroyed ? 'busy' : credentials.authenticate(login, network),
    )
    if (verdict === 'unavailable') return failedLogin(verdict, NOT_READY)
    const credential = credentials.credentialStatus(accountId, accessKey)
    if (credential.active || credential.exists) context.recordIdentity({ accountId, accessKey })
    if (verdict === 'busy' || verdict === 'throttled')
      return failedLogin(verdict, NOT_READY, { retryAfterSeconds })
    // The credential may have been disabled since the check. The response is the same for every rejected login.
    if (verdict === 'rejected' || !credential.active) {
      const error = { ...ERRORS.authenticationFailed, code: config.contract.authenticationFailedCode }
      return failedLogin('rejected', error, { errorType: 'http_request_denied' })
    }

    const granted = grantScope(requestedScope, login, credential)
    if (!granted.ok) return failedLogin('invalid', granted.error)
    const issued = await signer.issueToken({ accountId, accessKey, scope: granted.value })
    context.recordIdentity(issued.identity)
    return ok(issued)
  }

  sendTimeLeft(res: SidecarResponse, { expiresAtSeconds }: Identity): void {
    this.options.responder.sendJson(res, 200, { expirationSec: this.expirationSec(expiresAtSeconds) })
  }

  /** DELETE: revokes the token of the request. Rejects only on an internal error. */
  logOut(res: SidecarResponse, identity: Identity): Promise<void> {
    return this.revoke(res, identity, { event: 'logout' })
  }
}

/** Ignores unknown fields. The error names every invalid field. */
function readLogin(members: Members) {
  const problems: string[] = []
  const read = (field: string, problemOf: (text: string) => string | undefined): string => {
    const value = members.get(field)
    const mistake = value === undefined ? 'is missing' : 'must be a string'
    const problem = typeof value === 'string' ? problemOf(value) : mistake
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    return typeof value === 'string' ? value : ''
  }
  const login = {
    accountId: read('accountId', nameProblem),
    accessKey: read('accessKey', nameProblem),
    secret: read('secret', secretProblem),
  }
  // `grantScope` checks the text once the login is accepted: a requested scope must not change how a login fails.
  const scope = members.get('scope')
  if (scope !== undefined && typeof scope !== 'string') problems.push('scope must be a string.')
  if (problems.length > 0) return failed(badArgument(problems.join(' ')))
  return ok({ login, requestedScope: scope?.toString() })
}

/** The limit of every field of a login. The scope of a credential may be longer. */
const MAX_REQUESTED_SCOPE_CHARACTERS = 1024

/** Returns the requested scope if the credential covers it. The default is the scope of the credential. */
function grantScope(
  requested: string | undefined,
  { accountId, accessKey }: Login,
  credential: Extract<CredentialStatus, { active: true }>,
): Result<Scope | undefined, PublicError> {
  const own = parseStoredScope(credential.scope)
  if (requested === undefined) return ok(own)
  if (requested.length > MAX_REQUESTED_SCOPE_CHARACTERS)
    return failed(badArgument(`scope must have at most ${MAX_REQUESTED_SCOPE_CHARACTERS} characters.`))
  const scope = parseScope(requested)
  if (!scope.ok) return failed(badArgument(`scope ${scope.error}.`))
  if (own !== undefined && !coversScope(own, scope.value))
    return failed(badArgument('scope has an item that the credential does not cover.'))
  const isTooLong = claimsProblem(accountId, accessKey, requested) !== undefined
  return isTooLong ? failed(badArgument('scope is too long for a token with these names.')) : scope
}
