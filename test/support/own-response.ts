/** Properties of every response that the sidecar creates itself. */
import type { Test } from 'tap'
import type { RawResponse } from './raw-client.ts'

/** Expected properties of a response of the sidecar itself. */
interface OwnResponse {
  readonly status: number
  /** The error code; undefined: the response is not an error. */
  readonly code?: string
  /** In `Proxy-Status`, if relevant. */
  readonly error?: string
  readonly details?: string
  /** Responds to a HEAD. */
  readonly head?: boolean
}

/** While the upstream cannot be used, by the error of `Proxy-Status`. */
export const unavailable = (error: string) => ({ status: 503, code: 'ServiceNotReady', error })

/** Checks all properties of a response that the sidecar creates itself, in one assertion. */
export function isOwnResponse(
  t: Test,
  response: RawResponse,
  expected: OwnResponse,
  name = `${expected.status} ${expected.error ?? expected.code}`,
): void {
  const { status, headers, body } = response
  const header = (field: string) => headers[field] ?? ''
  const found = {
    status,
    type: headers['content-type'],
    cache: headers['cache-control'],
    chunked: headers['transfer-encoding'],
    requestId: /^[A-Za-z0-9._-]{1,128}$/.test(header('x-request-id')),
    hasDate: !Number.isNaN(Date.parse(header('date'))),
    retryAfter: /^[1-9][0-9]*$/.test(header('retry-after')),
    allow: headers['allow'],
    proxyStatus: proxyStatusOf(header('proxy-status'), expected),
    body: bodyOf(body, expected),
    hasLength: expected.head === true || Number(headers['content-length']) === body.length,
  }
  const wanted = {
    status: expected.status,
    type: 'application/json',
    cache: 'no-store',
    chunked: undefined,
    requestId: true,
    hasDate: true,
    retryAfter: expected.status === 503 || expected.status === 429,
    allow: expected.status === 405 ? 'GET, HEAD, POST' : undefined,
    proxyStatus: expectedProxyStatus(expected),
    body: expectedBody(expected),
    hasLength: true,
  }
  t.same(found, wanted, name)
}

const PROXY_STATUS = /^storage-auth-sidecar; error=([a-z_]+)(?:; details="([a-z_]+)")?$/

/** The members that are expected, or `none`. */
function proxyStatusOf(value: string, expected: OwnResponse) {
  const [text, error, details] = PROXY_STATUS.exec(value) ?? []
  if (text === undefined) {
    return 'none'
  }
  return { error: expected.error && error, details: expected.details && details }
}

const expectedProxyStatus = ({ code, error, details }: OwnResponse) =>
  code === undefined ? 'none' : { error, details }

function bodyOf(body: Buffer, { head, code }: OwnResponse) {
  if (head) {
    return body.toString('latin1')
  }
  const content = json(body)
  if (content === undefined) {
    return 'no JSON'
  }
  if (code === undefined && !('code' in content) && !('message' in content)) {
    return 'no error'
  }
  const { code: found, message } = { code: undefined, message: undefined, ...content }
  return { code: found, message: typeof message, members: Object.keys(content) }
}

function expectedBody({ head, code }: OwnResponse) {
  if (head) {
    return ''
  }
  return code === undefined ? 'no error' : { code, message: 'string', members: ['code', 'message'] }
}

/** A body as JSON; undefined where it is not JSON. */
function json(body: Buffer): object | undefined {
  try {
    const parsed: unknown = JSON.parse(body.toString())
    return typeof parsed === 'object' && parsed !== null ? parsed : undefined
  } catch {
    return undefined
  }
}
