/**
 * Why a forwarded request failed: the label `outcome` of the metrics, and the field `reason` of the access log.
 * Names of upstream faults are the error types of `Proxy-Status` (RFC 9209, section 2.3).
 */
export const UPSTREAM_FAULTS = [
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

export type UpstreamFault = (typeof UPSTREAM_FAULTS)[number]

/** RFC 9209 has one name for all errors of the client: `http_request_error`. */
export const CLIENT_FAILURES = ['client_aborted', 'client_idle'] as const

export type ClientFailure = (typeof CLIENT_FAILURES)[number]

export function isClientFailure(reason: string | undefined): reason is ClientFailure {
  return reason === 'client_aborted' || reason === 'client_idle'
}

/** An error type of `Proxy-Status`. */
export type ProxyErrorType =
  | UpstreamFault
  | 'http_request_error'
  | 'http_request_denied'
  | 'proxy_internal_response'
