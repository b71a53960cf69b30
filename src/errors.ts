/**
 * The catalogue of public errors: every refusal that a client can receive. The data listener sends no other code,
 * except `contract.authenticationFailedCode`. Messages of `InvalidArgument` may be more specific (`server/token-endpoint.ts`).
 * The cause goes to the log and, as an error type of RFC 9209, to `Proxy-Status`.
 */

export interface PublicError {
  readonly status: 400 | 401 | 403 | 405 | 408 | 417 | 431 | 500 | 503
  readonly code:
    | 'InvalidArgument'
    | 'ExpiredToken'
    | 'InvalidToken'
    | 'Authentication failed'
    | 'AuthenticationFailed'
    | 'AccessDenied'
    | 'InternalError'
    | 'ServiceNotReady'
  readonly message: string
}

/** Messages are plain words: no stack, path, token, secret or address. */
export const ERRORS = {
  invalidArgument: {
    status: 400,
    code: 'InvalidArgument',
    message: 'An argument is not valid, or an argument is missing.',
  },
  malformedRequest: {
    status: 400,
    code: 'InvalidArgument',
    message: 'The request is not valid HTTP, or is ambiguous.',
  },
  upgradeRefused: {
    status: 400,
    code: 'InvalidArgument',
    message: 'Only an upgrade to WebSocket is supported.',
  },
  methodNotAllowed: {
    status: 405,
    code: 'InvalidArgument',
    message: 'The method is not allowed here. The header Allow has those that are.',
  },
  requestTimeout: { status: 408, code: 'InvalidArgument', message: 'The request was not completed in time.' },
  expectationFailed: {
    status: 417,
    code: 'InvalidArgument',
    message: 'The expectation is not supported. Only 100-continue is.',
  },
  headersTooLarge: {
    status: 431,
    code: 'InvalidArgument',
    message: 'The request has too many or too large header fields.',
  },
  /** Refused tokens get 401 instead, if `contract.refusedTokenStatus` says so (`gate/decide.ts`). */
  expiredToken: { status: 400, code: 'ExpiredToken', message: 'Token expired.' },
  invalidToken: { status: 400, code: 'InvalidToken', message: 'Token is not valid.' },
  authenticationFailed: { status: 403, code: 'Authentication failed', message: 'Authentication failed.' },
  accessDenied: { status: 403, code: 'AccessDenied', message: 'The token does not allow this request.' },
  internalError: {
    status: 500,
    code: 'InternalError',
    message: 'The server encountered an internal error. Retry the request.',
  },
  serviceNotReady: {
    status: 503,
    code: 'ServiceNotReady',
    message: 'The server is not ready to handle the request. Retry later.',
  },
} as const satisfies Record<string, PublicError>
