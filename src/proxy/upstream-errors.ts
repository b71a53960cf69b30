/**
 * The outcomes of forwarded requests: the label `outcome` of `auth_sidecar_upstream_requests_total`.
 * Names of faults are the error types of RFC 9209, section 2.3.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import {
  CLIENT_FAILURES,
  type ClientFailure,
  isClientFailure,
  networkErrorOf,
  UPSTREAM_FAULTS,
  type UpstreamFault,
} from '../http/proxy-errors.ts'

export const UPSTREAM_OUTCOMES = ['ok', ...CLIENT_FAILURES, ...UPSTREAM_FAULTS] as const

export type { UpstreamFault }
export type UpstreamFailure = UpstreamFault | ClientFailure
export type UpstreamOutcome = (typeof UPSTREAM_OUTCOMES)[number]

/** Upstream bytes that are not an HTTP/1.1 response. The message gives the reason, and none of the bytes. */
export class ResponseSyntaxError extends Error {
  override readonly name = 'ResponseSyntaxError'
}

export function faultError(fault: UpstreamFault): PublicError {
  return fault === 'http_protocol_error' || fault === 'proxy_internal_error'
    ? ERRORS.internalError
    : ERRORS.serviceNotReady
}

/** The upstream is not there: it may be shutting down, and its replica with it. */
const NOT_THERE: ReadonlySet<UpstreamOutcome> = new Set([
  'connection_refused',
  'connection_terminated',
  'connection_timeout',
  'destination_ip_unroutable',
  'dns_error',
  'http_response_incomplete',
])

/** `close`: the client should connect again, perhaps to another replica, before its next request. */
export function refusalOf(outcome: UpstreamFailure) {
  const isOfClient = isClientFailure(outcome)
  return {
    // RFC 9209 has one name for all errors of the client.
    errorType: isOfClient ? ('http_request_error' as const) : outcome,
    close: isOfClient || NOT_THERE.has(outcome),
  }
}

export function faultOf(error: unknown): UpstreamFault {
  if (error instanceof ResponseSyntaxError) return 'http_protocol_error'
  return networkErrorOf(error) ?? 'proxy_internal_error'
}

/** Classes of upstream statuses; there is no final response below 200. */
export const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx'] as const
export type StatusClass = (typeof STATUS_CLASSES)[number]

/** Undefined for a 101, and for a status that no class has. */
export function statusClassOf(status: number): StatusClass | undefined {
  return STATUS_CLASSES[Math.floor(status / 100) - 2]
}
