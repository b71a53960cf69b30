/** Sends the requests of `check`. Each request has its own connection, and is bounded in time and size. */
import { once } from 'node:events'
import http, { type IncomingHttpHeaders, type IncomingMessage, type RequestOptions } from 'node:http'
import https from 'node:https'
import { TLSSocket } from 'node:tls'
import { networkFailureOf } from '../base/failures.ts'
import { errorCode, readUpTo } from '../files/files.ts'

export const REQUEST_MS = 3000
const MAX_BODY_BYTES = 262_144

/** If there is no response, `status` is 0 and `code` says why. Without TLS, `certificateEndsAtMs` is NaN. */
export type Response = Awaited<ReturnType<typeof sendRequest>>

/** Never rejects. A body that is too long is truncated. */
export async function sendRequest(
  url: URL,
  { body, ...options }: Pick<RequestOptions, 'method' | 'headers'> & { readonly body?: string } = {},
) {
  // A 101 ends the request without an event. This timer, unlike AbortSignal.timeout, keeps the process alive.
  const limit = new AbortController()
  const timer = setTimeout(() => limit.abort(), REQUEST_MS)
  const { signal } = limit
  const { request: start } = url.protocol === 'https:' ? https : http
  const request = start(url, { ...options, agent: false, signal })
  let isConnected = false
  request.on('socket', (socket) => socket.on('connect', () => (isConnected = true)))
  request.on('error', () => {}) // `once` or the read of the body also throws the error
  try {
    request.end(body)
    const response: IncomingMessage = (await once(request, 'response', { signal }))[0]
    const { socket, statusCode: status = 0, headers } = response
    const validTo = socket instanceof TLSSocket ? socket.getPeerCertificate().valid_to : ''
    const text = (await readUpTo(response, MAX_BODY_BYTES)).toString()
    const certificateEndsAtMs = Date.parse(validTo)
    return { status, headers, body: text, code: '', error: undefined, isConnected, certificateEndsAtMs }
  } catch (error) {
    const code = signal.aborted ? 'timeout' : errorCode(error)
    const headers: IncomingHttpHeaders = {}
    const failed = { status: 0, headers, body: '', isConnected, certificateEndsAtMs: Number.NaN }
    return { ...failed, code, error: networkFailureOf(error) }
  } finally {
    clearTimeout(timer)
    request.destroy()
  }
}

export function fieldsOf({ body }: Response): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body)
    return value instanceof Object ? { ...value } : {}
  } catch {
    return {}
  }
}

/** The sidecar names itself in `Proxy-Status` of its own responses (RFC 9209). */
export const isOurs = ({ headers }: Response) =>
  /^storage-auth-sidecar(?:;|$)/.test(String(headers['proxy-status'] ?? ''))

export const isInvalidToken = (response: Response) =>
  isOurs(response) && [400, 401].includes(response.status) && fieldsOf(response)['code'] === 'InvalidToken'

export const outcomeOf = ({ status, code }: Response) => (status === 0 ? code : `status ${status}`)
