/**
 * The catalogue of public errors, and the reasons why requests fail: closed sets of words for the access log,
 * metrics and `Proxy-Status` (RFC 9209), with the error that the client receives.
 *
 * The words for requests, in all files:
 *
 *   failure   why a request did not succeed: a word of this file. Fields and labels call it `reason`
 *   cause     what lies behind a failure, for the access log: a network code or a fixed text
 *   outcome   how a forwarded request ended: `ok` or a failure. In an audit line: how the event ended
 *   refusal   the sidecar does not do what a client asks. For logins and tokens: `rejected`
 *   error     what a client receives (`ERRORS`); an exception; in a `Result`, why there is no value
 *   problem   what is wrong with settings, a file, a body or the sidecar, as a sentence
 *   verdict   the result of the check of a token or a secret
 */

export type PublicError = Readonly<{ status: number; code: string; message: string }>

const error = (status: number, code: string, message: string): PublicError => ({ status, code, message })
const invalid = (status: number, message: string) => error(status, 'InvalidArgument', message)

/**
 * Messages are plain words: no stack, path, token, secret or address. An `InvalidArgument` may have a more
 * specific message. The setting `contract.authenticationFailedCode` replaces the code of failed logins.
 */
export const ERRORS = {
  invalidArgument: invalid(400, 'An argument is not valid, or an argument is missing.'),
  malformedRequest: invalid(400, 'The request is not valid HTTP, or is ambiguous.'),
  plainHttp: invalid(400, 'A plain HTTP request was sent to a port of HTTPS.'),
  upgradeRefused: invalid(400, 'Only an upgrade to WebSocket is supported.'),
  methodNotAllowed: invalid(405, 'The method is not allowed here. The header Allow has those that are.'),
  requestTimeout: invalid(408, 'The request was not completed in time.'),
  expectationFailed: invalid(417, 'The expectation is not supported. Only 100-continue is.'),
  headersTooLarge: invalid(431, 'The request has too many or too large header fields.'),
  expiredToken: error(400, 'ExpiredToken', 'Token expired.'),
  invalidToken: error(400, 'InvalidToken', 'Token is not valid.'),
  basicAuthenticationFailed: error(401, 'Authentication failed', 'Authentication failed.'),
  authenticationFailed: error(403, 'Authentication failed', 'Authentication failed.'),
  accessDenied: error(403, 'AccessDenied', 'The token does not allow this request.'),
  tooManyRequests: error(429, 'TooManyRequests', 'The account is over its limit. Retry later.'),
  internalError: error(500, 'InternalError', 'The server encountered an internal error. Retry the request.'),
  notReady: error(503, 'ServiceNotReady', 'The server is not ready to handle the request. Retry later.'),
} as const

/**
 * Why a token is refused, independently of the request.
 * The setting `contract.refusedTokenStatus` replaces the status 400.
 */
export const TOKEN_ERRORS = {
  malformed: ERRORS.invalidToken,
  expired: ERRORS.expiredToken, // only a token with a valid signature is called expired
  signature: ERRORS.invalidToken,
  unknown_key: ERRORS.invalidToken,
  algorithm: ERRORS.invalidToken,
  claims: ERRORS.invalidToken,
  revoked: ERRORS.invalidToken,
  unavailable: ERRORS.notReady, // the keys of the issuer have not been fetched yet
} satisfies Readonly<Record<string, PublicError>>
export type TokenFailure = keyof typeof TOKEN_ERRORS

/** Why a request that needs a caller is refused: `reason` of `auth_sidecar_token_checks_total`. */
export const ACCESS_ERRORS = {
  missing: ERRORS.invalidToken,
  ...TOKEN_ERRORS,
  credentials: ERRORS.basicAuthenticationFailed, // of HTTP Basic, or another scheme than it and Bearer
  scope: ERRORS.accessDenied,
  host: ERRORS.accessDenied, // what a path names at this host is not known (`scopes.hosts`)
  fair_use: ERRORS.tooManyRequests, // the setting `fairUse.refusedStatus` replaces the status
}
export type AccessFailure = keyof typeof ACCESS_ERRORS
export const ACCESS_FAILURES = Object.keys(ACCESS_ERRORS) as AccessFailure[]

/**
 * Why a login ends without a token: `reason` of `auth_sidecar_token_issue_failures_total`.
 * Links share some of the words.
 */
export const LOGIN_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const
export type LoginFailure = (typeof LOGIN_FAILURES)[number]

/**
 * `close`:
 * the rest of the request cannot be read, or the upstream is away: a new connection may lead to another pod.
 */
type FailureResponse = readonly [PublicError, close?: 'close']

/** Why a forwarded request failed. Names without `client_` are error types of RFC 9209, section 2.3. */
const FORWARDING_FAILURES = {
  // Is never sent: the client has left, or the drain deadline has passed.
  client_aborted: [ERRORS.malformedRequest, 'close'],
  client_idle: [ERRORS.requestTimeout, 'close'],
  client_malformed: [ERRORS.malformedRequest, 'close'], // the body of the request
  client_trailers: [ERRORS.headersTooLarge, 'close'], // more trailer lines than `limits.headerLines`
  connection_refused: [ERRORS.notReady, 'close'],
  connection_timeout: [ERRORS.notReady, 'close'],
  connection_terminated: [ERRORS.notReady, 'close'],
  connection_read_timeout: [ERRORS.notReady], // is never sent: a response has begun
  connection_write_timeout: [ERRORS.notReady],
  connection_limit_reached: [ERRORS.notReady],
  destination_not_found: [ERRORS.notReady], // no upstream serves the path, so none has this outcome
  destination_ip_unroutable: [ERRORS.notReady, 'close'],
  dns_error: [ERRORS.notReady, 'close'],
  tls_certificate_error: [ERRORS.notReady],
  tls_protocol_error: [ERRORS.notReady],
  http_protocol_error: [ERRORS.internalError],
  http_response_incomplete: [ERRORS.notReady, 'close'],
  http_response_timeout: [ERRORS.notReady],
  proxy_loop_detected: [ERRORS.notReady, 'close'], // the sidecar has forwarded the request to itself
  proxy_internal_error: [ERRORS.internalError],
} satisfies Readonly<Record<string, FailureResponse>>

export type ForwardingFailure = keyof typeof FORWARDING_FAILURES

export const responseTo = (failure: ForwardingFailure): FailureResponse => FORWARDING_FAILURES[failure]

/** How a forwarded request ended: `outcome` of `auth_sidecar_upstream_requests_total`. */
export type UpstreamOutcome = 'ok' | ForwardingFailure

export const UPSTREAM_OUTCOMES = ['ok', ...Object.keys(FORWARDING_FAILURES)] as UpstreamOutcome[]

/** Why a request failed: `reason` of the access log. */
export type Failure = AccessFailure | LoginFailure | ForwardingFailure | OtherFailure
type OtherFailure = 'admission' | 'parser' | 'upgrade' | 'method' | 'internal' | 'drain_deadline'

/** The sidecar names itself in `Proxy-Status` of its own responses (RFC 9209). */
export const PROXY_NAME = 'storage-auth-sidecar'

/** Failures that the client has caused. RFC 9209 has one error type for them: `http_request_error`. */
export type ClientFailure = Extract<ForwardingFailure, `client_${string}`>

export const isClientFailure = (reason: string | undefined): reason is ClientFailure =>
  reason?.startsWith('client_') === true

/** The failure of a connection to another server, by the code of Node, OpenSSL or the system. */
const FAILURES_BY_CODE: Readonly<Record<string, ForwardingFailure>> = {
  ECONNREFUSED: 'connection_refused',
  ENOENT: 'connection_refused', // a unix socket that does not exist
  EACCES: 'connection_refused',
  EPERM: 'connection_refused',
  ENOTFOUND: 'dns_error',
  ETIMEDOUT: 'connection_timeout',
  ENETUNREACH: 'destination_ip_unroutable',
  EHOSTUNREACH: 'destination_ip_unroutable',
  EADDRNOTAVAIL: 'destination_ip_unroutable',
  EMFILE: 'connection_limit_reached', // no open file is left (`isOutOfFiles`)
  ENFILE: 'connection_limit_reached',
  EPROTO: 'tls_protocol_error',
  // OpenSSL verification results without `CERT` in their name.
  INVALID_CA: 'tls_certificate_error',
  INVALID_PURPOSE: 'tls_certificate_error',
  PATH_LENGTH_EXCEEDED: 'tls_certificate_error',
  UNSPECIFIED: 'tls_certificate_error', // Node has no name for some results, such as a key that is too small
}

/**
 * Returns the `code` of an error of Node, OpenSSL or the system.
 * A code holds no address and no bytes of the peer.
 */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined

/** Whether the process (`ulimit -n`), or the whole system, may open no more files and connections. */
export function isOutOfFiles(error: unknown): boolean {
  const code = codeOf(error)
  return code === 'EMFILE' || code === 'ENFILE'
}

/**
 * Returns undefined for an error that is no network error.
 * An unknown system error is `connection_terminated`.
 */
export function networkFailureOf(error: unknown): ForwardingFailure | undefined {
  const code = codeOf(error) ?? ''
  const known = FAILURES_BY_CODE[code]
  if (known !== undefined) {
    return known
  }
  if (code.startsWith('EAI_')) {
    return 'dns_error'
  }
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_HANDSHAKE')) {
    return 'tls_protocol_error'
  }
  // OpenSSL's verification results, such as SELF_SIGNED_CERT_IN_CHAIN, and Node's check of the host name.
  if (code.includes('CERT') || code.startsWith('UNABLE_TO_')) {
    return 'tls_certificate_error'
  }
  return code === '' || code.startsWith('ERR_') ? undefined : 'connection_terminated'
}
