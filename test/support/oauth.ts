/** Requests of OAuth clients as bytes, and what the standard says of their errors. */
import type { Test } from 'tap'
import type { RawResponse } from './raw-client.ts'

export const TOKEN_PATH = '/v2/oauth/token'
export const FORM = 'Content-Type: application/x-www-form-urlencoded\r\n'
export const GRANT = 'grant_type=client_credentials'

/** `lines`: header lines, each with its end. */
export function post(
  body: string | Uint8Array,
  lines = '',
  path: string = TOKEN_PATH,
  method = 'POST',
): Buffer {
  const bytes = Buffer.from(body)
  const head = `${method} ${path} HTTP/1.1\r\nHost: h\r\n${lines}Content-Length: ${bytes.length}\r\n\r\n`
  return Buffer.concat([Buffer.from(head, 'latin1'), bytes])
}

export const form = (members: Record<string, string>) => new URLSearchParams(members).toString()

export const basic = (name: string, secret: string) =>
  `Authorization: Basic ${Buffer.from(`${name}:${secret}`).toString('base64')}\r\n`

/** A login by `client_secret_post`. */
export function loginInBody(name: string, secret: string, more: Record<string, string> = {}): Buffer {
  const client = { client_id: name, client_secret: secret }
  return post(form({ grant_type: 'client_credentials', ...client, ...more }), FORM)
}

/** A login by `client_secret_basic`, with the texts as they are. */
export const loginInHeader = (name: string, secret: string, body = GRANT) =>
  post(body, FORM + basic(name, secret))

export const jsonOf = (response: RawResponse) => JSON.parse(response.body.toString())

interface ExpectedError {
  readonly status: number
  readonly error: string
  readonly description?: RegExp
}

/** Checks all that the standard and the sidecar say of an error. */
export function isOAuthError(t: Test, response: RawResponse, expected: ExpectedError, name: string): void {
  const { status, headers } = response
  const body = jsonOf(response)
  t.same(
    {
      status,
      error: body.error,
      members: Object.keys(body),
      type: headers['content-type'],
      cache: headers['cache-control'],
      length: headers['content-length'],
      chunked: headers['transfer-encoding'],
      challenge: headers['www-authenticate'],
      hasRetryAfter: /^[1-9]\d*$/.test(headers['retry-after'] ?? ''),
      hasProxyStatus: /^storage-auth-sidecar; error=[a-z_]+$/.test(headers['proxy-status'] ?? ''),
    },
    {
      status: expected.status,
      error: expected.error,
      members: ['error', 'error_description'],
      type: 'application/json',
      cache: 'no-store',
      length: String(response.body.length),
      chunked: undefined,
      challenge: expected.status === 401 ? 'Basic realm="storage"' : undefined,
      hasRetryAfter: expected.status === 503,
      hasProxyStatus: true,
    },
    name,
  )
  // RFC 6749, section 5.2, limits the characters.
  t.match(body.error_description, /^[ !#-[\]-~]+$/, `${name}: description`)
  if (expected.description !== undefined) {
    t.match(body.error_description, expected.description, name)
  }
}
