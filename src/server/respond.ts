/**
 * The sidecar's own responses: JSON with a `Content-Length` (a published client drops chunked error bodies) and
 * by default `Cache-Control: no-store`; errors with `Proxy-Status` (RFC 9209); CORS headers for allowed origins.
 */
import { STATUS_CODES } from 'node:http'
import type { PublicError } from '../errors.ts'
import type { ProxyErrorType } from '../http/proxy-errors.ts'
import { mustCloseAfter, type SidecarRequest, type SidecarResponse } from './context.ts'
import { endAfterBody, hasUnreadBody } from './unread-body.ts'

interface ErrorDetails {
  readonly errorType: ProxyErrorType
  /** A word of a closed set, never client input. */
  readonly details?: string
  /** For 503. */
  readonly retryAfterSeconds?: number | undefined
  readonly close?: boolean
  /** Names and values, alternating. */
  readonly headers?: readonly string[]
}

interface ResponderOptions {
  readonly isDraining: () => boolean
  readonly allowedOrigins: readonly string[]
}

/** Sends responses; a body must be ASCII. Does nothing if a response has begun or the client has closed. */
export interface Responder {
  send(
    req: SidecarRequest,
    res: SidecarResponse,
    status: number,
    body: object | undefined,
    headers?: readonly string[],
    close?: boolean,
  ): void
  refuse(req: SidecarRequest, res: SidecarResponse, error: PublicError, details: ErrorDetails): void
  /** For bytes that are not a request: Node has no response object for them. */
  parserErrorResponse(error: PublicError, requestId: string, bytes?: Buffer): string
  allows(origin: string | undefined): origin is string
}

const PROXY_NAME = 'storage-auth-sidecar'

export function createResponder({ isDraining, allowedOrigins }: ResponderOptions): Responder {
  const anyOrigin = allowedOrigins.includes('*')
  const origins = new Set(allowedOrigins)
  const allows = (origin: string | undefined): origin is string =>
    origin !== undefined && (anyOrigin || origins.has(origin))

  const corsHeaders = (origin: string) => [
    ...['Access-Control-Allow-Origin', anyOrigin ? '*' : origin, 'Vary', 'Origin'],
    ...['Access-Control-Expose-Headers', 'X-Request-Id, Proxy-Status, Retry-After'],
  ]

  const send: Responder['send'] = (req, res, status, body, headers = [], close = false) => {
    if (res.headersSent || res.destroyed) return
    const { context } = req
    const text = body === undefined ? '' : JSON.stringify(body)
    const list = body === undefined ? [] : ['Content-Type', 'application/json']
    if (status !== 204) list.push('Content-Length', String(Buffer.byteLength(text)))
    if (!headers.includes('Cache-Control')) list.push('Cache-Control', 'no-store')
    list.push(...headers, 'X-Request-Id', context.id)
    const { origin } = req.headers
    if (allows(origin)) list.push(...corsHeaders(origin))
    const unread = hasUnreadBody(req)
    const mustClose = close || unread || isDraining() || mustCloseAfter(req)
    if (mustClose) list.push('Connection', 'close')
    res.writeHead(status, STATUS_CODES[status] ?? '', list)
    if (req.method !== 'HEAD') context.countOut(text.length)
    res.complete()
    if (unread) {
      res.flushHeaders() // `write` alone would not send a head without a body: HEAD, 204
      res.write(text, 'latin1')
      endAfterBody(req, res)
    } else {
      res.end(text, 'latin1')
    }
  }

  return {
    send,
    allows,
    refuse(req, res, error, { errorType, details, retryAfterSeconds = 1, close, headers = [] }) {
      const suffix = details === undefined ? '' : `; details="${details}"`
      const list = ['Proxy-Status', `${PROXY_NAME}; error=${errorType}${suffix}`, ...headers]
      if (error.status === 503) list.push('Retry-After', String(retryAfterSeconds))
      send(req, res, error.status, { code: error.code, message: error.message }, list, close)
    },
    parserErrorResponse({ status, code, message }, requestId, bytes) {
      const body = JSON.stringify({ code, message })
      const origin = allowedOrigins.length > 0 ? originIn(bytes) : undefined
      const headers = [
        ...[
          'Content-Type',
          'application/json',
          'Content-Length',
          `${body.length}`,
          'Cache-Control',
          'no-store',
        ],
        ...['Proxy-Status', `${PROXY_NAME}; error=http_request_error`, 'X-Request-Id', requestId],
        ...(allows(origin) ? corsHeaders(origin) : []),
        ...['Date', new Date().toUTCString(), 'Connection', 'close'],
      ]
      let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`
      for (let at = 0; at < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`
      return `${head}\r\n${body}`
    },
  }
}

/** `Origin` of a head that the parser refused, if it is in the bytes that it had last. */
function originIn(bytes: Buffer | undefined): string | undefined {
  return /^origin:[ \t]*(\S*)/im.exec(bytes?.toString('latin1') ?? '')?.[1]
}
