/**
 * The catalogue of public errors. The setting `contract.authenticationFailedCode` replaces the code of a failed login.
 * An `InvalidArgument` may have a more specific message. The log and `Proxy-Status` (RFC 9209) hold the cause.
 */

export interface PublicError {
  readonly status: number
  readonly code: string
  readonly message: string
}

const error = (status: number, code: string, message: string): PublicError => ({ status, code, message })

/** Messages are plain words: no stack, path, token, secret or address. */
export const ERRORS = {
  invalidArgument: error(400, 'InvalidArgument', 'An argument is not valid, or an argument is missing.'),
  malformedRequest: error(400, 'InvalidArgument', 'The request is not valid HTTP, or is ambiguous.'),
  upgradeRefused: error(400, 'InvalidArgument', 'Only an upgrade to WebSocket is supported.'),
  methodNotAllowed: error(
    405,
    'InvalidArgument',
    'The method is not allowed here. The header Allow has those that are.',
  ),
  requestTimeout: error(408, 'InvalidArgument', 'The request was not completed in time.'),
  expectationFailed: error(417, 'InvalidArgument', 'The expectation is not supported. Only 100-continue is.'),
  headersTooLarge: error(431, 'InvalidArgument', 'The request has too many or too large header fields.'),
  /** `contract.refusedTokenStatus` replaces the status of the next two errors. */
  expiredToken: error(400, 'ExpiredToken', 'Token expired.'),
  invalidToken: error(400, 'InvalidToken', 'Token is not valid.'),
  authenticationFailed: error(403, 'Authentication failed', 'Authentication failed.'),
  accessDenied: error(403, 'AccessDenied', 'The token does not allow this request.'),
  internalError: error(500, 'InternalError', 'The server encountered an internal error. Retry the request.'),
  serviceNotReady: error(
    503,
    'ServiceNotReady',
    'The server is not ready to handle the request. Retry later.',
  ),
} as const
