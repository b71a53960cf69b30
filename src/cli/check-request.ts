/**
 * The requests of `check`, each on its own connection and bounded in time and size.
 */
import { once } from 'node:events'
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { TLSSocket } from 'node:tls'
import { fileErrorCode } from '../reload/files.ts'

export const REQUEST_MS = 3000
const MAX_BODY_CHARACTERS = 262_144

/** Without a response `status` is 0 and `fault` an error code. */
export interface Response {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly fault: string
  readonly connected: boolean
  /** When the certificate of the server ends, in epoch milliseconds; NaN without TLS. */
  readonly certificateEnds: number
}

interface Request {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/** Never rejects; a body that is too long is truncated. */
export async function send(
  url: URL,
  { method = 'GET', headers = {}, body }: Request = {},
): Promise<Response> {
  const signal = AbortSignal.timeout(REQUEST_MS)
  const options = { method, headers, agent: false, signal }
  const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, options)
  let connected = false
  request.on('socket', (socket) => {
    socket.on('connect', () => {
      connected = true
    })
  })
  request.on('error', () => {}) // the one that counts is caught below
  try {
    request.end(body)
    const closed = once(request, 'close').then(() => Promise.reject(new Error('closed')))
    const [response]: IncomingMessage[] = await Promise.race([once(request, 'response'), closed])
    if (response === undefined) throw new Error('no response')
    const { socket } = response
    const validTo = socket instanceof TLSSocket ? socket.getPeerCertificate().valid_to : ''
    let text = ''
    for await (const chunk of response.setEncoding('utf8')) {
      text += chunk
      if (text.length > MAX_BODY_CHARACTERS) break
    }
    const { statusCode: status = 0, headers } = response
    return { status, headers, body: text, fault: '', connected, certificateEnds: Date.parse(validTo) }
  } catch (error) {
    const fault = signal.aborted ? 'timeout' : fileErrorCode(error)
    return { status: 0, headers: {}, body: '', fault, connected, certificateEnds: Number.NaN }
  } finally {
    request.destroy()
  }
}

/** The fields of a JSON object; none where the body is something else. */
export function fieldsOf({ body }: Response): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body)
    return value instanceof Object ? { ...value } : {}
  } catch {
    return {}
  }
}
