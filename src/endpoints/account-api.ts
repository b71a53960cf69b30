/**
 * The Account API: issues tokens for credentials, reports the seconds that a token has left, and ends tokens; creates links to
 * requests that a token allows, and ends links.
 * In: a request that its route allows. Out: a documented response, with the same body for every rejected login.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { ERRORS, type LoginFailure, type PublicError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { claimsProblem, nameProblem, secretProblem } from '../base/values.ts'
import { clientNetwork } from '../client/client-address.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { ErrorResponseOptions, Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { CredentialChecks, Login } from '../credentials/credential-checks.ts'
import type { EndedToken, LoginThrottle, NotRevoked, RevokeToken } from '../credentials/throttles.ts'
import { HeaderLines, type HeaderList } from '../http/headers.ts'
import { LINKS_PATH, pathOf } from '../http/request-target.ts'
import type { Caller, Identity } from '../token/caller.ts'
import type { TokenSigner } from '../token/issue.ts'
import type { CredentialStatus } from '../token/issuers.ts'
import { isLinkId, isLinkOf, LINK_METHODS, linkTargetProblem } from '../token/links.ts'
import { coversScope, parseScope, parseStoredScope, type Scope, scopeAllows } from '../token/scopes.ts'
import { badArgument, readJson } from './json-body.ts'

/** What a request did, for the audit log and the metrics. The caller is the `identityForLog` of the request context. */
export type ApiEvent =
  | { readonly event: 'login' | 'logout' }
  | { readonly event: 'login_failed'; readonly reason: LoginFailure }
  | { readonly event: 'link_created' | 'link_ended'; readonly linkId: string }

interface AccountApiOptions {
  readonly config: Pick<Config, 'contract' | 'links' | 'listen' | 'timeouts'>
  readonly responder: Responder
  readonly signer: TokenSigner
  /** Absent without `credentials.file` and without a database. */
  readonly credentials: CredentialChecks | undefined
  readonly throttle: LoginThrottle
  /** Absent without a database for revocations. */
  readonly revoke: RevokeToken | undefined
  readonly recordEvent: (req: SidecarRequest, event: ApiEvent) => void
  readonly now: () => number
}

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins/s and starved token checks. */
const RETRY_DELAY_MS = 250

const NOT_READY = ERRORS.notReady
const failedLogin = (reason: LoginFailure, error: PublicError, options?: ErrorResponseOptions) =>
  failed({ reason, error, options })

export class AccountApi {
  readonly #options: AccountApiOptions

  constructor(options: AccountApiOptions) {
    this.#options = options
  }

  /** POST: issues a token. Rejects only on an internal error. */
  async logIn(res: SidecarResponse): Promise<void> {
    const { responder, recordEvent } = this.#options
    const recordFailure = (reason: LoginFailure) => recordEvent(res.req, { event: 'login_failed', reason })
    const issued = await this.#issueToken(res).catch((error: unknown) => {
      recordFailure('internal')
      throw error
    })
    if (issued.ok) {
      const { token, lifetimeSeconds } = issued.value
      recordEvent(res.req, { event: 'login' })
      const expirationSec = this.#expirationSec(lifetimeSeconds)
      return responder.sendJson(res, 200, { token, expirationSec })
    }
    const { reason, error, options } = issued.error
    if (reason === 'busy' && res.destroyed) {
      return // the client left while its login waited
    }
    recordFailure(reason)
    if (reason === 'busy' || reason === 'throttled') {
      await sleep(RETRY_DELAY_MS)
    }
    responder.fail(res, reason, error, options)
  }

  async #issueToken(res: SidecarResponse) {
    const { config, credentials, throttle, signer } = this.#options
    const { context, clientAddress } = res.req
    if (credentials === undefined || !signer.canSign) {
      return failedLogin('unavailable', NOT_READY)
    }
    const body = await readJson(res, config.timeouts.idleSeconds * 1000)
    const fields = body.ok ? readLogin(body.value) : body
    if (!fields.ok) {
      return failedLogin('invalid', fields.error)
    }
    const { login, requestedScope } = fields.value
    const { accountId, accessKey } = login
    if (credentials.hasAccount(accountId)) {
      context.recordIdentity({ accountId })
    }

    const network = clientNetwork(clientAddress)
    const { verdict, retryAfterSeconds } = await throttle(login, network, async () =>
      res.destroyed ? 'busy' : credentials.authenticate(login, network),
    )
    if (verdict === 'unavailable') {
      return failedLogin(verdict, NOT_READY)
    }
    const credential = credentials.credentialStatus(accountId, accessKey)
    if (credential.active || credential.exists) {
      context.recordIdentity({ accountId, accessKey })
    }
    if (verdict === 'busy' || verdict === 'throttled') {
      return failedLogin(verdict, NOT_READY, { retryAfterSeconds })
    }
    // The credential may have been disabled since the check. The response is the same for every rejected login.
    if (verdict === 'rejected' || !credential.active) {
      const error = { ...ERRORS.authenticationFailed, code: config.contract.authenticationFailedCode }
      return failedLogin('rejected', error, { errorType: 'http_request_denied' })
    }

    const granted = grantScope(requestedScope, login, credential)
    if (!granted.ok) {
      return failedLogin('invalid', granted.error)
    }
    const issued = await signer.issueToken({ accountId, accessKey, scope: granted.value })
    context.recordIdentity(issued.identity)
    return ok(issued)
  }

  sendTimeLeft(res: SidecarResponse, { expiresAtSeconds }: Identity): void {
    const { responder, now } = this.#options
    const secondsLeft = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
    responder.sendJson(res, 200, { expirationSec: this.#expirationSec(secondsLeft) })
  }

  /** DELETE: revokes the token of the request. Rejects only on an internal error. */
  logOut(res: SidecarResponse, identity: Identity): Promise<void> {
    return this.#revoke(res, identity, { event: 'logout' })
  }

  /** POST: creates a link. Rejects only on an internal error. */
  async createLink(res: SidecarResponse, caller: Caller): Promise<void> {
    const { config, responder, signer, recordEvent } = this.#options
    if (!signer.canSign) {
      return responder.fail(res, 'unavailable', NOT_READY)
    }
    const body = await readJson(res, config.timeouts.idleSeconds * 1000)
    const fields = body.ok ? readLinkFields(body.value, config.links.maxLifetimeSeconds) : body
    if (!fields.ok) {
      return responder.fail(res, 'invalid', fields.error)
    }
    const { method, target, lifetimeSeconds } = fields.value
    if (!mayLink(caller.identity.scope, method, target)) {
      return responder.refuseAccess(res, 'scope', ERRORS.accessDenied)
    }
    const issued = await signer.issueLink(caller, method, target, lifetimeSeconds)
    if (issued === undefined) {
      return responder.fail(res, 'invalid', badArgument('target is too long for a link of this account.'))
    }
    const { url, linkId } = issued
    recordEvent(res.req, { event: 'link_created', linkId })
    responder.sendJson(res, 200, { url, linkId, expirationSec: this.#expirationSec(issued.lifetimeSeconds) })
  }

  /** DELETE: ends a link of the account. The sidecar does not record which links exist. Rejects only on an internal error. */
  async endLink(res: SidecarResponse, { accountId }: Identity, path: string): Promise<void> {
    const { config, responder, now } = this.#options
    const linkId = path.slice(config.listen.basePath.length + LINKS_PATH.length + 1)
    if (!isLinkId(linkId)) {
      return responder.fail(res, 'invalid', badArgument('The path has no id of a link.'))
    }
    if (!isLinkOf(linkId, accountId)) {
      return responder.refuseAccess(res, 'scope', ERRORS.accessDenied)
    }
    // The link id does not tell when the link ends, so the longest lifetime counts.
    const expiresAtSeconds = Math.ceil(now() / 1000) + config.links.maxLifetimeSeconds
    const ended = { accountId, tokenId: linkId, expiresAtSeconds }
    await this.#revoke(res, ended, { event: 'link_ended', linkId })
  }

  #expirationSec(seconds: number): number | string {
    const { contract } = this.#options.config
    return contract.expirationSec === 'string' ? String(seconds) : seconds
  }

  /** Revokes a token or a link, and records `event`. Rejects only on an internal error. */
  async #revoke(res: SidecarResponse, ended: EndedToken, event: ApiEvent): Promise<void> {
    const { responder, revoke, recordEvent } = this.#options
    const revoked = (await revoke?.(ended)) ?? failed<NotRevoked>({ reason: 'unavailable' })
    if (revoked.ok) {
      recordEvent(res.req, event)
      return responder.sendEmpty(res, 204)
    }
    const { reason, retryAfterSeconds } = revoked.error
    responder.fail(res, reason, NOT_READY, { retryAfterSeconds })
  }
}

/** Ignores unknown fields. The error names every invalid field. */
function readLogin(members: JsonObject) {
  const problems: string[] = []
  const read = (field: string, problemOf: (text: string) => string | undefined): string => {
    const value = members[field]
    const mistake = value === undefined ? 'is missing' : 'must be a string'
    const problem = typeof value === 'string' ? problemOf(value) : mistake
    if (problem !== undefined) {
      problems.push(`${field} ${problem}.`)
    }
    return typeof value === 'string' ? value : ''
  }
  const login = {
    accountId: read('accountId', nameProblem),
    accessKey: read('accessKey', nameProblem),
    secret: read('secret', secretProblem),
  }
  // `grantScope` checks the text once the login is accepted: a requested scope must not change how a login fails.
  const scope = members['scope']
  if (scope !== undefined && typeof scope !== 'string') {
    problems.push('scope must be a string.')
  }
  if (problems.length > 0) {
    return failed(badArgument(problems.join(' ')))
  }
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
  if (requested === undefined) {
    return ok(own)
  }
  if (requested.length > MAX_REQUESTED_SCOPE_CHARACTERS) {
    return failed(badArgument(`scope must have at most ${MAX_REQUESTED_SCOPE_CHARACTERS} characters.`))
  }
  const scope = parseScope(requested)
  if (!scope.ok) {
    return failed(badArgument(`scope ${scope.error}.`))
  }
  if (own !== undefined && !coversScope(own, scope.value)) {
    return failed(badArgument('scope has an item that the credential does not cover.'))
  }
  const isTooLong = claimsProblem(accountId, accessKey, requested) !== undefined
  return isTooLong ? failed(badArgument('scope is too long for a token with these names.')) : scope
}

function readLinkFields(members: JsonObject, maxLifetimeSeconds: number) {
  const { method, target, expirationSec: lifetime = Math.min(3600, maxLifetimeSeconds) } = members
  const problems: string[] = []
  if (!LINK_METHODS.has(method)) {
    problems.push(`method must be one of ${[...LINK_METHODS].join(', ')}.`)
  }
  const targetProblem = linkTargetProblem(target)
  if (targetProblem !== undefined) {
    problems.push(`target ${targetProblem}.`)
  }
  const isLifetime =
    Number.isInteger(lifetime) && Number(lifetime) >= 1 && Number(lifetime) <= maxLifetimeSeconds
  if (!isLifetime) {
    problems.push(`expirationSec must be an integer from 1 to ${maxLifetimeSeconds}.`)
  }
  if (problems.length > 0) {
    return failed(badArgument(problems.join(' ')))
  }
  return ok({ method: String(method), target: String(target), lifetimeSeconds: Number(lifetime) })
}

/** A scope may allow a PUT only with `If-None-Match: *`. The client of the link can send this header. */
function mayLink(scope: Scope | undefined, method: string, target: string): boolean {
  const request = { method, target, path: pathOf(target), host: undefined }
  const mayWith = (headers: HeaderList) =>
    scope === undefined || scopeAllows(scope, { ...request, lines: new HeaderLines(headers) })
  return mayWith([]) || mayWith(['If-None-Match', '*'])
}
