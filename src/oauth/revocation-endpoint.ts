/**
 * The revocation endpoint (RFC 7009): a client ends a token of its own, as by logout.
 * The response is the same if the text is not a token of the client.
 */
import type { PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Login } from '../credentials/credential-checks.ts'
import type { CredentialName } from '../credentials/credential-list.ts'
import type { EndToken } from '../credentials/revocation-limit.ts'
import { type BodyLimits, bodyLimitsOf } from '../endpoints/request-body.ts'
import type { VerifiedToken } from '../token/caller.ts'
import { readClient } from './client-authentication.ts'
import { type Form, readForm } from './form.ts'
import type { OAuthOptions } from './oauth.ts'
import { invalidRequest, OAuthRefusals } from './oauth-errors.ts'

interface RevocationRequest {
  readonly login: Login
  readonly token: string
}

export class RevocationEndpoint {
  readonly #options: OAuthOptions
  readonly #endToken: EndToken
  readonly #refusals: OAuthRefusals
  readonly #bodyLimits: BodyLimits

  constructor(options: OAuthOptions, endToken: EndToken) {
    this.#options = options
    this.#endToken = endToken
    this.#bodyLimits = bodyLimitsOf(options.config)
    this.#refusals = new OAuthRefusals(options.responder, options.config.basic.realm)
  }

  /** Rejects only on an internal error. */
  async respond(res: SidecarResponse): Promise<void> {
    const { logins, responder, recordEvent } = this.#options
    if (res.req.method !== 'POST') {
      return this.#refusals.refuseMethod(res, 'POST')
    }
    const form = await readForm(res, this.#bodyLimits)
    const request = form.ok ? this.#readRequest(res, form.value) : form
    if (!request.ok) {
      recordEvent(res.req, { event: 'login_failed', method: 'oauth', reason: 'invalid' })
      return this.#refusals.refuseRequest(res, request.error)
    }
    const { login, token } = request.value
    const accepted = await logins.authenticate(res, login, 'oauth')
    if (!accepted.ok) {
      return this.#refusals.refuseLogin(res, accepted.error)
    }
    const own = await this.#ownTokenOf(accepted.value.credential, token)
    if (own !== undefined) {
      const { identity, issuer } = own
      const ended = await this.#endToken({ ...identity, issuer })
      if (!ended.ok) {
        return this.#refusals.refuseLogin(res, ended.error)
      }
      res.req.context.recordIdentity(identity)
      recordEvent(res.req, { event: 'logout' })
    }
    responder.sendEmpty(res, 200)
  }

  #readRequest({ req }: SidecarResponse, form: Form): Result<RevocationRequest, PublicError> {
    const token = form.get('token')
    if (token === undefined) {
      return failed(invalidRequest('token is missing.'))
    }
    const login = readClient(req.context, form, this.#options.logins)
    return login.ok ? ok({ login: login.value, token }) : login
  }

  /** Undefined unless the text is a valid token that the credential got from this issuer. */
  async #ownTokenOf(credential: CredentialName, text: string): Promise<VerifiedToken | undefined> {
    const { config, verify } = this.#options
    const verdict = await verify(text)
    if (!verdict.ok) {
      return undefined
    }
    const { identity, issuer, link } = verdict.value
    const isOfCredential =
      identity.accountId === credential.accountId && identity.accessKey === credential.accessKey
    const isOwn = isOfCredential && issuer === config.token.issuer && link === undefined
    return isOwn ? verdict.value : undefined
  }
}
