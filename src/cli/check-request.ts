/**
 * The requests of `check`, each on a connection of its own and bounded in time and size, whatever the server does.
 */
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:tls'

export const REQUEST_MS = 3000
const MAX_BODY_BYTES = 262_144

/** A response; without one, `status` is 0 and `fault` an error code. */
export interface Response {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly fault: string
  readonly connected: boolean
}

export interface Request {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/** Never rejects; a body that is too long is truncated. */
export function send(url: URL, { method = 'GET', headers = {}, body = '' }: Request = {}): Promise<Response> {
  return new Promise((resolve) => {
    let connected = false
    const request = url.protocol === 'https:' ? httpsRequest : httpRequest
    const signal = AbortSignal.timeout(REQUEST_MS)
    const length = body === '' ? {} : { 'Content-Length': Buffer.byteLength(body) }
    const fail = (error: NodeJS.ErrnoException) => {
      const code = /^[A-Z0-9_]{1,64}$/.test(error.code ?? '') ? String(error.code) : 'error'
      resolve({ status: 0, headers: {}, body: '', fault: signal.aborted ? 'timeout' : code, connected })
    }
    const options = { method, headers: { ...headers, ...length }, agent: false, signal }
    const outgoing = request(url, options, (response) => {
      const chunks: Buffer[] = []
      let size = 0
      const end = () => {
        const { statusCode = 0, headers } = response
        resolve({ status: statusCode, headers, body: Buffer.concat(chunks).toString(), fault: '', connected })
        outgoing.destroy()
      }
      response.on('end', end).on('error', fail)
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size > MAX_BODY_BYTES) end()
      })
    })
    outgoing.on('socket', (socket) => {
      socket.on('connect', () => {
        connected = true
      })
    })
    outgoing.on('error', fail).on('close', () => fail(new Error('closed')))
    outgoing.end(body)
  })
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

/** The certificate of a server, without a request; undefined where there is no TLS handshake. */
export function certificateOf({
  hostname,
  port,
}: URL): Promise<{ readonly endsAt: number; readonly isTrusted: boolean } | undefined> {
  const host = hostname.replace(/^\[|\]$/g, '')
  const isAddress = /^[\d.]+$|:/.test(host)
  return new Promise((resolve) => {
    // Unverified, as no data is sent here. Requests verify the certificate.
    const options = { host, port: Number(port || 443), rejectUnauthorized: false }
    const socket = connect({ ...options, ...(!isAddress && { servername: host }) })
    const end = (certificate?: { readonly endsAt: number; readonly isTrusted: boolean }) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(certificate)
    }
    const timer = setTimeout(end, REQUEST_MS)
    socket.once('error', () => end())
    socket.once('secureConnect', () => {
      end({ endsAt: Date.parse(socket.getPeerCertificate().valid_to), isTrusted: socket.authorized })
    })
  })
}
