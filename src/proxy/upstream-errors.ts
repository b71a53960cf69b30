/**
 * The outcomes of forwarded requests: the label `outcome` of `auth_sidecar_upstream_requests_total`; and how those that
 * failed before a response are refused.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import {
  CLIENT_FAILURES,
  type ClientFailure,
  isClientFailure,
  UPSTREAM_FAULTS,
  type UpstreamFault,
} from '../http/proxy-errors.ts'
import type { SidecarResponse } from '../server/context.ts'
import type { Responder } from '../server/respond.ts'

export const UPSTREAM_OUTCOMES = ['ok', ...CLIENT_FAILURES, ...UPSTREAM_FAULTS] as const

export type UpstreamOutcome = (typeof UPSTREAM_OUTCOMES)[number]
export type UpstreamFailure = UpstreamFault | ClientFailure

export interface UpstreamEvents {
  onOutcome(outcome: UpstreamOutcome): void
  /** The head of a final response. `seconds`: since the request's start. */
  onResponse(status: number, seconds: number): void
}

/** Of failures that a later attempt may not meet, the error is `serviceNotReady`. */
const ERROR_OF: Readonly<Partial<Record<UpstreamFailure, PublicError>>> = {
  client_aborted: ERRORS.malformedRequest,
  client_idle: ERRORS.requestTimeout,
  http_protocol_error: ERRORS.internalError,
  proxy_internal_error: ERRORS.internalError,
}

/** The upstream is not there: it may be shutting down, and its replica with it. */
const NOT_THERE: ReadonlySet<UpstreamFailure> = new Set([
  'connection_refused',
  'connection_terminated',
  'connection_timeout',
  'destination_ip_unroutable',
  'dns_error',
  'http_response_incomplete',
])

/** Refuses a request of whose response nothing has been sent. */
export function refuseFailed(responder: Responder, res: SidecarResponse, failure: UpstreamFailure): void {
  const isOfClient = isClientFailure(failure)
  responder.refuse(res, failure, ERROR_OF[failure] ?? ERRORS.serviceNotReady, {
    // RFC 9209 has one name for all errors of the client.
    errorType: isOfClient ? 'http_request_error' : failure,
    // The client should connect again, perhaps to another replica, before its next request.
    close: isOfClient || NOT_THERE.has(failure),
  })
}
