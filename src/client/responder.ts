/**
 * Sends the sidecar's own responses: JSON with a `Content-Length`, because a published client
 * drops chunked error bodies. By default they have `Cache-Control: no-store`.
 * Errors have `Proxy-Status` (RFC 9209). Allowed origins get CORS headers.
 */
import { STATUS_CODES } from 'node:http'
import type { AccessFailure, ClientFailure, Failure, ForwardingFailure, PublicError } from '../base/errors.ts'
import { ERRORS, isClientFailure, PROXY_NAME, responseTo } from '../base/errors.ts'
import type { Config } from '../config/config.ts'
import { type HeaderList, headerText } from '../http/headers.ts'
import type { UnparsedRefusal } from './connection.ts'
import type { Persistence, SidecarResponse } from './response.ts'

/**
 * The error types in `Proxy-Status` (RFC 9209,
 * section 2.3) of upstream failures and of the sidecar's own refusals.
 */
type ProxyErrorType =
  | Exclude<ForwardingFailure, ClientFailure>
  | 'http_request_error'
  | 'http_request_denied'
  | 'proxy_internal_response'

export interface ErrorResponseOptions {
  /** Default: `proxy_internal_response` for a 503, `http_request_error` for other statuses. */
  readonly errorType?: ProxyErrorType
  /** A word of a closed set, never client input. */
  readonly details?: string
  /** Default: 1 for a 503, none for other statuses. */
  readonly retryAfterSeconds?: number | undefined
  readonly persistence?: Persistence | undefined
  readonly cause?: string | undefined
  readonly headers?: HeaderList
  /** Default: the code and the message of the error. */
  readonly body?: object | undefined
}

interface Refusal {
  readonly reason: AccessFailure
  readonly error: PublicError
  readonly headers?: HeaderList
  readonly retryAfterSeconds?: number | undefined
  readonly cause?: string | undefined
}

export class Responder {
  readonly #allowedOrigins: ReadonlySet<string>

  constructor({ allowedOrigins }: Config['cors']) {
    this.#allowedOrigins = new Set(allowedOrigins)
  }

  sendJson(res: SidecarResponse, status: number, body: object, headers: HeaderList = []): void {
    this.#send(res, status, JSON.stringify(body), headers, 'keepAlive')
  }

  /** Sends a body that is the same for every client, and that caches may keep. */
  sendCacheable(res: SidecarResponse, body: object, maxAgeSeconds: number): void {
    const headers = ['Cache-Control', `public, max-age=${maxAgeSeconds}`]
    // A cache must not give a response without CORS headers to a browser.
    const lacksVary = this.#allowedOrigins.size > 0 && !this.#isAllowedOrigin(res.req.headers.origin)
    if (lacksVary) {
      headers.push('Vary', 'Origin')
    }
    this.sendJson(res, 200, body, headers)
  }

  sendEmpty(res: SidecarResponse, status: number, headers: HeaderList = []): void {
    this.#send(res, status, '', headers, 'keepAlive')
  }

  /** `text` must be ASCII: its length becomes the `Content-Length`. */
  #send(res: SidecarResponse, status: number, text: string, headers: HeaderList, persistence: Persistence) {
    if (res.hasBegun || res.destroyed) {
      return
    }
    const { context, method, headers: received } = res.req
    const list = this.#headers(status, text, context.id, headers, received.origin)
    if (method !== 'HEAD') {
      context.count('out', text.length)
    }
    res.sendWhole(status, list, text, persistence)
  }

  /**
   * Records the failure, unless the request has failed before. Sends the error, unless a response has begun.
   */
  fail(res: SidecarResponse, reason: Failure, error: PublicError, options: ErrorResponseOptions = {}) {
    const { status, code, message } = error
    const { body = { code, message } } = options
    const defaultType = status === 503 ? 'proxy_internal_response' : 'http_request_error'
    const { errorType = defaultType, details, headers = [] } = options
    const retryAfterSeconds = options.retryAfterSeconds ?? (status === 503 ? 1 : undefined)
    res.req.context.recordFailure(reason, options.cause)
    const list = ['Proxy-Status', proxyStatus(errorType, details), ...headers]
    if (retryAfterSeconds !== undefined) {
      list.push('Retry-After', String(retryAfterSeconds))
    }
    this.#send(res, status, JSON.stringify(body), list, options.persistence ?? 'keepAlive')
  }

  /** Refuses a request for its token or login, or by a room. The reason is a detail of `Proxy-Status`. */
  refuseAccess(res: SidecarResponse, refusal: Refusal) {
    const { reason, error, headers = [], retryAfterSeconds, cause } = refusal
    const forLog = { retryAfterSeconds, cause }
    const options = { errorType: 'http_request_denied', details: reason, headers, ...forLog } as const
    this.fail(res, reason, error, options)
  }

  failForwarded(res: SidecarResponse, failure: ForwardingFailure, cause?: string): void {
    const [error, persistence] = responseTo(failure)
    const errorType = isClientFailure(failure) ? 'http_request_error' : failure
    this.fail(res, failure, error, { errorType, persistence, cause })
  }

  /**
   * Refuses a method with a 405. A CORS preflight of an allowed origin (Fetch standard) gets a 204.
   * `body`: that of the 405.
   */
  refuseMethod(res: SidecarResponse, allowed: string, body?: object) {
    const { context, headers } = res.req
    if (context.admitted?.isPreflight === true && this.#isAllowedOrigin(headers.origin)) {
      const allow = [
        ['Access-Control-Allow-Methods', allowed],
        ['Access-Control-Allow-Headers', 'authorization, content-type'],
        ['Access-Control-Max-Age', '600'],
      ]
      return this.sendEmpty(res, 204, allow.flat())
    }
    this.fail(res, 'method', ERRORS.methodNotAllowed, { headers: ['Allow', allowed], body })
  }

  /** Returns the response of an `UnparsedRefusal`, for which Node has no response object. */
  unparsedResponse({ error: { status, code, message }, bytes }: UnparsedRefusal, requestId: string): string {
    const body = JSON.stringify({ code, message })
    const origin = /^origin:[ \t]*(\S*)/im.exec(bytes?.toString('latin1') ?? '')?.[1]
    const headers = ['Proxy-Status', proxyStatus('http_request_error'), 'Date', new Date().toUTCString()]
    const list = this.#headers(status, body, requestId, [...headers, 'Connection', 'close'], origin)
    return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${headerText(list)}\r\n${body}`
  }

  /** Returns all headers of a response for `sendWhole`. `headers`: those that only this response has. */
  #headers(status: number, text: string, requestId: string, headers: HeaderList, origin = ''): string[] {
    const list = text === '' ? [] : ['Content-Type', 'application/json']
    if (status !== 204) {
      list.push('Content-Length', String(text.length))
    }
    // A value may be this text, too.
    const hasOwn = headers.some((name, at) => at % 2 === 0 && name === 'Cache-Control')
    if (!hasOwn) {
      list.push('Cache-Control', 'no-store')
    }
    list.push(...headers, 'X-Request-Id', requestId, ...this.#corsHeaders(origin))
    return list
  }

  #isAllowedOrigin(origin = ''): boolean {
    return origin !== '' && (this.#allowedOrigins.has('*') || this.#allowedOrigins.has(origin))
  }

  #corsHeaders(origin: string): string[] {
    if (!this.#isAllowedOrigin(origin)) {
      return []
    }
    return [
      ['Access-Control-Allow-Origin', this.#allowedOrigins.has('*') ? '*' : origin],
      ['Vary', 'Origin'],
      ['Access-Control-Expose-Headers', 'X-Request-Id, Proxy-Status, Retry-After'],
    ].flat()
  }
}

const proxyStatus = (errorType: ProxyErrorType, details?: string): string =>
  `${PROXY_NAME}; error=${errorType}${details === undefined ? '' : `; details="${details}"`}`
