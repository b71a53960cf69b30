/**
 * Every refusal a client can be given: its status, its public code, its message.
 *
 * Nothing else in the program writes a public code, nor a message but those that name what is wrong with a login.
 * The client sees these words and no others; what really happened goes to the log and, in the words of RFC 9209, into `Proxy-Status`.
 *
 * @module
 */

/** One refusal as the client sees it. */
export interface PublicError {
  readonly status: 400 | 403 | 405 | 408 | 431 | 500 | 503
  readonly code:
    | 'InvalidArgument'
    | 'ExpiredToken'
    | 'InvalidToken'
    | 'Authentication failed'
    | 'AuthenticationFailed'
    | 'InternalError'
    | 'ServiceNotReady'
  readonly message: string
}

/** The catalogue. Messages are plain words: no stack, path, token, secret or address. */
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
    message: 'Upgrading the connection is not supported.',
  },
  methodNotAllowed: {
    status: 405,
    code: 'InvalidArgument',
    message: 'The method is not allowed here. Use GET, HEAD or POST.',
  },
  requestTimeout: { status: 408, code: 'InvalidArgument', message: 'The request was not completed in time.' },
  headersTooLarge: {
    status: 431,
    code: 'InvalidArgument',
    message: 'The request has too many or too large header fields.',
  },
  expiredToken: { status: 400, code: 'ExpiredToken', message: 'Token expired.' },
  invalidToken: { status: 400, code: 'InvalidToken', message: 'Token is not valid.' },
  authenticationFailed: { status: 403, code: 'Authentication failed', message: 'Authentication failed.' },
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
