/**
 * The outcomes of forwarded requests: the label `outcome` of `auth_sidecar_upstream_requests_total`.
 * Names of faults are the error types of RFC 9209, section 2.3.
 */
import { ERRORS, type PublicError } from '../errors.ts'

export const UPSTREAM_OUTCOMES = [
  'ok',
  'client_aborted',
  'client_idle',
  'connection_refused',
  'connection_timeout',
  'connection_terminated',
  'connection_read_timeout',
  'connection_write_timeout',
  'connection_limit_reached',
  'destination_not_found',
  'destination_ip_unroutable',
  'dns_error',
  'tls_certificate_error',
  'tls_protocol_error',
  'http_protocol_error',
  'http_response_incomplete',
  'http_response_timeout',
  'proxy_internal_error',
] as const

export type UpstreamOutcome = (typeof UPSTREAM_OUTCOMES)[number]

export type UpstreamFault = Exclude<UpstreamOutcome, 'ok' | 'client_aborted' | 'client_idle'>

/** Upstream bytes that are not an HTTP/1.1 response. The message gives the reason, and none of the bytes. */
export class ResponseSyntaxError extends Error {
  override readonly name = 'ResponseSyntaxError'
}

export function faultError(fault: UpstreamFault): PublicError {
  return fault === 'http_protocol_error' || fault === 'proxy_internal_error'
    ? ERRORS.internalError
    : ERRORS.serviceNotReady
}

const BY_CODE: Readonly<Record<string, UpstreamFault>> = {
  ECONNREFUSED: 'connection_refused',
  ENOENT: 'connection_refused', // a unix socket that does not exist
  EACCES: 'connection_refused',
  EPERM: 'connection_refused',
  ENOTFOUND: 'dns_error',
  ETIMEDOUT: 'connection_timeout',
  ENETUNREACH: 'destination_ip_unroutable',
  EHOSTUNREACH: 'destination_ip_unroutable',
  EADDRNOTAVAIL: 'destination_ip_unroutable',
  ECONNRESET: 'connection_terminated',
  EPIPE: 'connection_terminated',
  EPROTO: 'tls_protocol_error',
  // OpenSSL verification results without `CERT` in their name.
  INVALID_CA: 'tls_certificate_error',
  INVALID_PURPOSE: 'tls_certificate_error',
  PATH_LENGTH_EXCEEDED: 'tls_certificate_error',
  UNSPECIFIED: 'tls_certificate_error', // verification results without a name in Node, such as a key that is too small
}

export function faultOf(error: unknown): UpstreamFault {
  if (error instanceof ResponseSyntaxError) return 'http_protocol_error'
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''
  const known = BY_CODE[code]
  if (known !== undefined) return known
  if (code.startsWith('EAI_')) return 'dns_error'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_HANDSHAKE')) return 'tls_protocol_error'
  // OpenSSL verification results (CERT_HAS_EXPIRED, SELF_SIGNED_CERT_IN_CHAIN, …) and Node's check of the host name.
  if (code.includes('CERT') || code.startsWith('UNABLE_TO_')) return 'tls_certificate_error'
  return code === '' || code.startsWith('ERR_') ? 'proxy_internal_error' : 'connection_terminated'
}
