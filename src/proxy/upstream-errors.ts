/**
 * What can go wrong between the sidecar and an upstream.
 * The names are the error types of RFC 9209, section 2.3; they are also the label `outcome` of
 * `auth_sidecar_upstream_requests_total`, beside `ok` and what the client did.
 */
import { ERRORS, type PublicError } from '../errors.ts'

/** Every way in which a forwarded request can end. */
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

/** One of them. */
export type UpstreamOutcome = (typeof UPSTREAM_OUTCOMES)[number]

/** A fault of the upstream or of the sidecar: it has an answer. */
export type UpstreamFault = Exclude<UpstreamOutcome, 'ok' | 'client_aborted' | 'client_idle'>

/** Bytes of an upstream that are no HTTP/1.1 response. The message says why, and holds none of them. */
export class ResponseSyntaxError extends Error {
  override readonly name = 'ResponseSyntaxError'
}

/** The answer to a fault, where the response head has not been sent. */
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
  // Results of OpenSSL's verification whose names do not speak of a certificate.
  INVALID_CA: 'tls_certificate_error',
  INVALID_PURPOSE: 'tls_certificate_error',
  PATH_LENGTH_EXCEEDED: 'tls_certificate_error',
  UNSPECIFIED: 'tls_certificate_error', // those for which Node has no name, such as a key that is too small
}

/** The fault that an error of a socket or of the parser stands for. */
export function faultOf(error: unknown): UpstreamFault {
  if (error instanceof ResponseSyntaxError) return 'http_protocol_error'
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''
  const known = BY_CODE[code]
  if (known !== undefined) return known
  if (code.startsWith('EAI_')) return 'dns_error'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_HANDSHAKE')) return 'tls_protocol_error'
  // OpenSSL's verification results (CERT_HAS_EXPIRED, SELF_SIGNED_CERT_IN_CHAIN, …) and Node's own check of the name.
  if (code.includes('CERT') || code.startsWith('UNABLE_TO_')) return 'tls_certificate_error'
  return code === '' || code.startsWith('ERR_') ? 'proxy_internal_error' : 'connection_terminated'
}
