/**
 * The token endpoint (RFC 6749, section 4.4): a client logs in with its credentials.
 * In: a form. Out: the token that a login of the Account API gives.
 */
import type { PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Login } from '../credentials/credential-checks.ts'
import { type BodyLimits, bodyLimitsOf } from '../endpoints/request-body.ts'
import { grantToken } from '../endpoints/token-grant.ts'
import { readClient } from './client-authentication.ts'
import { type Form, readForm } from './form.ts'
import type { OAuthOptions } from './oauth.ts'
import { invalidRequest, OAuthRefusals, UNSUPPORTED_GRANT_TYPE } from './oauth-errors.ts'

/** RFC 6749, section 5.1: for caches of HTTP/1.0. Every response has `Cache-Control: no-store`, too. */
const UNCACHED = ['Pragma', 'no-cache']

export class TokenEndpoint {
  readonly #options: OAuthOptions
  readonly #refusals: OAuthRefusals
  readonly #bodyLimits: BodyLimits
  readonly #ignoredScopes: ReadonlySet<string>

  constructor(options: OAuthOptions) {
    const { config, responder } = options
    this.#options = options
    this.#bodyLimits = bodyLimitsOf(config)
    this.#refusals = new OAuthRefusals(responder, config.basic.realm)
    this.#ignoredScopes = new Set(config.oauth.ignoredScopes)
  }

  /** Rejects only on an internal error. */
  async respond(res: SidecarResponse): Promise<void> {
    const { logins, responder, signer, recordEvent } = this.#options
    if (res.req.method !== 'POST') {
      return this.#refusals.refuseMethod(res, 'POST')
    }
    if (!signer.canSign) {
      recordEvent(res.req, { event: 'login_failed', method: 'oauth', reason: 'unavailable' })
      return this.#refusals.refuseUnavailable(res)
    }
    const form = await readForm(res, this.#bodyLimits)
    const request = form.ok ? this.#readRequest(res, form.value) : form
    if (!request.ok) {
      recordEvent(res.req, { event: 'login_failed', method: 'oauth', reason: 'invalid' })
      return this.#refusals.refuseRequest(res, request.error)
    }
    const { login, scope } = request.value
    const issued = await logins.logIn(res, login, 'oauth', (credential) =>
      grantToken(signer, credential, scope),
    )
    if (!issued.ok) {
      return this.#refusals.refuseLogin(res, issued.error)
    }
    const { token, lifetimeSeconds, identity } = issued.value
    const body = {
      access_token: token,
      token_type: 'Bearer',
      expires_in: lifetimeSeconds,
      scope: identity.scope?.text,
    }
    responder.sendJson(res, 200, body, UNCACHED)
  }

  #readRequest({ req }: SidecarResponse, form: Form): Result<TokenRequest, PublicError> {
    const grantType = form.get('grant_type')
    if (grantType === undefined) {
      return failed(invalidRequest('grant_type is missing.'))
    }
    if (grantType !== 'client_credentials') {
      return failed(UNSUPPORTED_GRANT_TYPE)
    }
    const login = readClient(req.context, form, this.#options.logins)
    return login.ok ? ok({ login: login.value, scope: this.#requestedScope(form) }) : login
  }

  /** Undefined if the client asks for nothing but ignored words. `grantToken` checks the rest. */
  #requestedScope(form: Form): string | undefined {
    const words = form.get('scope')?.split(' ') ?? []
    const wanted = words.filter((word) => !this.#ignoredScopes.has(word))
    return wanted.length === 0 ? undefined : wanted.join(' ')
  }
}

interface TokenRequest {
  readonly login: Login
  readonly scope: string | undefined
}
