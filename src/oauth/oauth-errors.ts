/**
 * The errors of OAuth 2.0 (RFC 6749, section 5.2), and their responses. `code` becomes the member `error`,
 * `message` the member `error_description`, whose characters the RFC limits: no quotes, no backslashes.
 */
import { ERRORS, type LoginFailure, type PublicError } from '../base/errors.ts'
import type { ErrorResponseOptions, Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { LoginRefusal } from '../endpoints/login-service.ts'

/** The same for an unknown name and a wrong secret, so that a client cannot tell which names exist. */
export const INVALID_CLIENT: PublicError = {
  status: 401,
  code: 'invalid_client',
  message: 'Client authentication failed.',
}

export const UNSUPPORTED_GRANT_TYPE: PublicError = {
  status: 400,
  code: 'unsupported_grant_type',
  message: 'grant_type must be client_credentials.',
}

const TEMPORARILY_UNAVAILABLE: PublicError = { ...ERRORS.notReady, code: 'temporarily_unavailable' }

export const invalidRequest = (message: string): PublicError => ({
  status: 400,
  code: 'invalid_request',
  message,
})

export class OAuthRefusals {
  readonly #responder: Responder
  readonly #challenge: string

  constructor(responder: Responder, realm: string) {
    this.#responder = responder
    this.#challenge = `Basic realm="${realm}"`
  }

  /** Refuses a request before a secret is checked. `InvalidArgument` becomes `invalid_request`. */
  refuseRequest(res: SidecarResponse, error: PublicError): void {
    const isOfAccountApi = error.code === ERRORS.invalidArgument.code
    this.#fail(res, 'invalid', isOfAccountApi ? { ...error, code: 'invalid_request' } : error)
  }

  refuseUnavailable(res: SidecarResponse): void {
    this.#fail(res, 'unavailable', TEMPORARILY_UNAVAILABLE)
  }

  refuseLogin(res: SidecarResponse, refusal: LoginRefusal): void {
    switch (refusal.reason) {
      case 'abandoned':
        break
      case 'invalid':
        this.#fail(res, 'invalid', { ...refusal.error, code: 'invalid_scope' })
        break
      case 'rejected':
        this.#fail(res, 'rejected', INVALID_CLIENT)
        break
      case 'unavailable':
        this.refuseUnavailable(res)
        break
      default: {
        const { reason, retryAfterSeconds } = refusal
        this.#fail(res, reason, TEMPORARILY_UNAVAILABLE, { retryAfterSeconds })
      }
    }
  }

  /** A preflight of an allowed origin is answered, as on the other endpoints. */
  refuseMethod(res: SidecarResponse, allowed: string): void {
    const { message } = ERRORS.methodNotAllowed
    this.#responder.refuseMethod(res, allowed, bodyOf(invalidRequest(message)))
  }

  #fail(
    res: SidecarResponse,
    reason: LoginFailure,
    error: PublicError,
    options: ErrorResponseOptions = {},
  ): void {
    const body = bodyOf(error)
    if (error.status !== INVALID_CLIENT.status) {
      this.#responder.fail(res, reason, error, { ...options, body })
      return
    }
    this.#responder.fail(res, reason, error, {
      ...options,
      errorType: 'http_request_denied',
      headers: ['WWW-Authenticate', this.#challenge],
      body,
    })
  }
}

const bodyOf = ({ code, message }: PublicError) => ({ error: code, error_description: message })
