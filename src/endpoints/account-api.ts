/**
 * The Account API: issues tokens for credentials, reports the seconds that a token has left, and ends tokens;
 * creates links to requests that a token allows, and ends links.
 * In: a request that its route allows.
 * Out: a documented response, with the same body for every rejected login.
 */
import { ERRORS } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { failed, ok } from '../base/result.ts'
import { nameProblem, textProblem } from '../base/values.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { EndingToken, EndToken, NotEnded } from '../credentials/revocation-limit.ts'
import { HeaderLines, type HeaderList } from '../http/headers.ts'
import { isHost } from '../http/hosts.ts'
import { LINKS_PATH, pathOf } from '../http/request-target.ts'
import type { Caller, Identity } from '../token/caller.ts'
import type { TokenSigner } from '../token/issue.ts'
import { isLinkId, isLinkOf, LINK_METHODS, linkTarget, linkTargetProblem } from '../token/links.ts'
import type { ScopeHosts } from '../token/scope-hosts.ts'
import { type Scope, scopeAllows } from '../token/scopes.ts'
import type { ApiEvent, RecordEvent } from './api-events.ts'
import { readJson } from './json-body.ts'
import type { LoginRefusal, LoginService } from './login-service.ts'
import { type BodyLimits, badArgument, bodyLimitsOf } from './request-body.ts'
import { grantToken } from './token-grant.ts'

interface AccountApiOptions {
  readonly config: Pick<Config, 'contract' | 'limits' | 'links' | 'listen' | 'timeouts' | 'token'>
  readonly responder: Responder
  readonly signer: TokenSigner
  /** Absent without `credentials.file` and without a database. */
  readonly logins: LoginService | undefined
  /** Absent without a database for revocations. */
  readonly endToken: EndToken | undefined
  readonly recordEvent: RecordEvent
  readonly scopeHosts: ScopeHosts
  readonly now: () => number
}

const NOT_READY = ERRORS.notReady

export class AccountApi {
  readonly #options: AccountApiOptions
  readonly #bodyLimits: BodyLimits

  constructor(options: AccountApiOptions) {
    this.#options = options
    this.#bodyLimits = bodyLimitsOf(options.config)
  }

  /** POST: issues a token. Rejects only on an internal error. */
  async logIn(res: SidecarResponse): Promise<void> {
    const { logins, responder, signer, recordEvent } = this.#options
    if (logins === undefined || !signer.canSign) {
      recordEvent(res.req, { event: 'login_failed', method: 'token', reason: 'unavailable' })
      return responder.fail(res, 'unavailable', NOT_READY)
    }
    const body = await readJson(res, this.#bodyLimits)
    const fields = body.ok ? readLogin(body.value) : body
    if (!fields.ok) {
      recordEvent(res.req, { event: 'login_failed', method: 'token', reason: 'invalid' })
      return responder.fail(res, 'invalid', fields.error)
    }
    const { login, requestedScope } = fields.value
    const issued = await logins.logIn(res, login, 'token', (credential) =>
      grantToken(signer, credential, requestedScope),
    )
    if (!issued.ok) {
      return this.#refuseLogin(res, issued.error)
    }
    const { token, lifetimeSeconds } = issued.value
    responder.sendJson(res, 200, { token, expirationSec: this.#expirationSec(lifetimeSeconds) })
  }

  #refuseLogin(res: SidecarResponse, refusal: LoginRefusal): void {
    const { config, responder } = this.#options
    switch (refusal.reason) {
      case 'abandoned':
        break
      case 'invalid':
        responder.fail(res, 'invalid', refusal.error)
        break
      case 'rejected': {
        const error = { ...ERRORS.authenticationFailed, code: config.contract.authenticationFailedCode }
        responder.fail(res, 'rejected', error, { errorType: 'http_request_denied' })
        break
      }
      case 'unavailable':
        responder.fail(res, 'unavailable', NOT_READY)
        break
      default: {
        const { reason, retryAfterSeconds } = refusal
        responder.fail(res, reason, NOT_READY, { retryAfterSeconds })
      }
    }
  }

  sendTimeLeft(res: SidecarResponse, { expiresAtSeconds }: Identity): void {
    const { responder, now } = this.#options
    const secondsLeft = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
    responder.sendJson(res, 200, { expirationSec: this.#expirationSec(secondsLeft) })
  }

  /** DELETE: ends the token of the request. Rejects only on an internal error. */
  logOut(res: SidecarResponse, { identity, issuer }: Caller): Promise<void> {
    return this.#end(res, { ...identity, issuer }, { event: 'logout' })
  }

  /** POST: creates a link. Rejects only on an internal error. */
  async createLink(res: SidecarResponse, caller: Caller): Promise<void> {
    const { config, responder, signer, scopeHosts, recordEvent } = this.#options
    if (!signer.canSign) {
      return responder.fail(res, 'unavailable', NOT_READY)
    }
    const body = await readJson(res, this.#bodyLimits)
    const fields = body.ok ? readLinkFields(body.value, config.links.maxLifetimeSeconds, scopeHosts) : body
    if (!fields.ok) {
      return responder.fail(res, 'invalid', fields.error)
    }
    const { method, target, lifetimeSeconds, host } = fields.value
    const boundHost = scopeHosts.boundName(host ?? res.req.context.admitted?.host)
    if (!mayLink(caller.identity.scope, method, target)) {
      return responder.refuseAccess(res, { reason: 'scope', error: ERRORS.accessDenied })
    }
    const issued = await signer.issueLink(caller, { method, target, host: boundHost }, lifetimeSeconds)
    if (issued === undefined) {
      return responder.fail(res, 'invalid', badArgument('target is too long for a link of this account.'))
    }
    const { url, linkId } = issued
    recordEvent(res.req, { event: 'link_created', linkId, method, target })
    responder.sendJson(res, 200, { url, linkId, expirationSec: this.#expirationSec(issued.lifetimeSeconds) })
  }

  /**
   * DELETE: ends a link of the account.
   * The sidecar does not record which links exist. Rejects only on an internal error.
   */
  async endLink(res: SidecarResponse, { accountId }: Identity, path: string): Promise<void> {
    const { config, responder, now } = this.#options
    const linkId = path.slice(config.listen.basePath.length + LINKS_PATH.length + 1)
    if (!isLinkId(linkId)) {
      return responder.fail(res, 'invalid', badArgument('The path has no id of a link.'))
    }
    if (!isLinkOf(linkId, accountId)) {
      return responder.refuseAccess(res, { reason: 'scope', error: ERRORS.accessDenied })
    }
    // The link id does not tell when the link ends, so the longest lifetime counts.
    const expiresAtSeconds = Math.ceil(now() / 1000) + config.links.maxLifetimeSeconds
    const link = { accountId, tokenId: linkId, issuer: config.token.issuer, expiresAtSeconds }
    await this.#end(res, link, { event: 'link_ended', linkId })
  }

  #expirationSec(seconds: number): number | string {
    const { contract } = this.#options.config
    return contract.expirationSec === 'string' ? String(seconds) : seconds
  }

  /** Ends a token or a link, and records `event`. Rejects only on an internal error. */
  async #end(res: SidecarResponse, token: EndingToken, event: ApiEvent): Promise<void> {
    const { responder, endToken, recordEvent } = this.#options
    const ended = (await endToken?.(token)) ?? failed<NotEnded>({ reason: 'unavailable' })
    if (ended.ok) {
      recordEvent(res.req, event)
      return responder.sendEmpty(res, 204)
    }
    const { reason, retryAfterSeconds } = ended.error
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
    secret: read('secret', textProblem),
  }
  // `grantToken` checks the text once the login is accepted:
  // a requested scope must not change how a login fails.
  const scope = members['scope']
  if (scope !== undefined && typeof scope !== 'string') {
    problems.push('scope must be a string.')
  }
  if (problems.length > 0) {
    return failed(badArgument(problems.join(' ')))
  }
  return ok({ login, requestedScope: scope?.toString() })
}

/** `host`: one of those at which links are accepted, if it is given. */
function readLinkFields(members: JsonObject, maxLifetimeSeconds: number, hosts: ScopeHosts) {
  const { method, host, expirationSec } = members
  const lifetime = expirationSec === undefined ? Math.min(3600, maxLifetimeSeconds) : expirationSec
  const target = typeof members['target'] === 'string' ? linkTarget(members['target']) : undefined
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
  if (host !== undefined && (typeof host !== 'string' || !isHost(host) || !hosts.includes(host))) {
    problems.push('host must be a host at which links are accepted.')
  }
  if (problems.length > 0) {
    return failed(badArgument(problems.join(' ')))
  }
  const bound = { method: String(method), target: String(target), host: host?.toString() }
  return ok({ ...bound, lifetimeSeconds: Number(lifetime) })
}

/** A scope may allow a PUT only with `If-None-Match: *`. The client of the link can send this header. */
function mayLink(scope: Scope | undefined, method: string, target: string): boolean {
  const request = { method, target, path: pathOf(target), host: undefined }
  const mayWith = (headers: HeaderList) =>
    scope === undefined || scopeAllows(scope, { ...request, lines: new HeaderLines(headers) })
  return mayWith([]) || mayWith(['If-None-Match', '*'])
}
