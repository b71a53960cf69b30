/**
 * The answers that the sidecar makes itself.
 *
 * Every one is JSON with a `Content-Length` (a published client drops chunked error bodies) and must not be stored.
 * An answer that reports an error says in `Proxy-Status` (RFC 9209) which.
 *
 * @module
 */
import { STATUS_CODES } from 'node:http'
import type { PublicError } from '../errors.ts'
import { fieldLines } from '../http1/field-lines.ts'
import type { ClientResponse } from './client-response.ts'

/** An answer, rendered but for what differs from request to request. */
export interface Answer {
  readonly status: number
  /** Field lines, each with its end. */
  readonly lines: string
  readonly body: string
}

/** What differs from request to request. */
export interface AnswerContext {
  readonly requestId: string
  /** Whether the connection ends with this answer. */
  readonly close: boolean
}

/** Renders a JSON answer. */
export function jsonAnswer(status: number, body: unknown, extra: readonly string[] = []): Answer {
  const text = JSON.stringify(body)
  return {
    status,
    lines: fieldLines([
      'Content-Type',
      'application/json',
      'Content-Length',
      String(Buffer.byteLength(text)),
      'Cache-Control',
      'no-store',
      ...extra,
    ]),
    body: text,
  }
}

/** Who we are in `Proxy-Status`. */
const PROXY_NAME = 'storage-auth-sidecar'

/** Seconds after which a client may try again, where nothing better is known. */
const RETRY_AFTER_SECONDS = 1

/** What an error answer says beside its code. */
export interface ErrorFacts {
  /** An error type of RFC 9209, section 2.3. */
  readonly error: string
  /** One of a closed set of words; never anything a client sent. */
  readonly details?: string
  /** For 503; default 1. */
  readonly retryAfterSeconds?: number
  /** For 405. */
  readonly allow?: string
}

/** Renders an answer that reports an error. */
export function errorAnswer(error: PublicError, facts: ErrorFacts): Answer {
  const extra = [
    'Proxy-Status',
    `${PROXY_NAME}; error=${facts.error}${facts.details === undefined ? '' : `; details="${facts.details}"`}`,
  ]
  if (error.status === 503) extra.push('Retry-After', String(facts.retryAfterSeconds ?? RETRY_AFTER_SECONDS))
  if (facts.allow !== undefined) extra.push('Allow', facts.allow)
  return jsonAnswer(error.status, { code: error.code, message: error.message }, extra)
}

/** Sends an answer; without its body where the request was HEAD. */
export function sendAnswer(res: ClientResponse, answer: Answer, context: AnswerContext): void {
  const lines = `${answer.lines}X-Request-Id: ${context.requestId}\r\n`
  res.sendWhole({ status: answer.status, lines, needsDate: true, close: context.close }, answer.body)
}

/** An answer as bytes, for a connection on which no response object exists; it is the last one there. */
export function rawAnswer(answer: Answer, requestId: string): string {
  return (
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}\r\n${answer.lines}X-Request-Id: ${requestId}\r\n` +
    `Date: ${new Date().toUTCString()}\r\nConnection: close\r\n\r\n${answer.body}`
  )
}
