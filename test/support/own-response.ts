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
  const [proxyStatus, error, details] =
    /^storage-auth-sidecar; error=([a-z_]+)(?:; details="([a-z_]+)")?$/.exec(headers['proxy-status'] ?? '') ??
    []
  const isError = expected.code !== undefined
  const hasBody = expected.head !== true
  const content = json(body)
  const { code, message } = { code: undefined, message: undefined, ...content }
  t.same(
    {
      status,
      type: headers['content-type'],
      cache: headers['cache-control'],
      chunked: headers['transfer-encoding'],
      body: content !== undefined,
      length: hasBody ? Number(headers['content-length']) === body.length : body.length === 0,
      code,
      members: isError && hasBody ? Object.keys(content ?? {}) : [],
      message: typeof message,
      requestId: /^[A-Za-z0-9._-]{1,128}$/.test(headers['x-request-id'] ?? ''),
      date: Number.isNaN(Date.parse(headers['date'] ?? '')),
      proxyStatus: proxyStatus !== undefined,
      error: expected.error && error,
      details: expected.details && details,
      retryAfter: /^[1-9][0-9]*$/.test(headers['retry-after'] ?? ''),
      allow: headers['allow'],
    },
    {
      status: expected.status,
      type: 'application/json',
      cache: 'no-store',
      chunked: undefined,
      body: hasBody,
      length: true,
      code: hasBody ? expected.code : undefined,
      members: isError && hasBody ? ['code', 'message'] : [],
      message: isError && hasBody ? 'string' : 'undefined',
      requestId: true,
      date: false,
      proxyStatus: isError,
      error: expected.error,
      details: expected.details,
      retryAfter: expected.status === 503 || expected.status === 429,
      allow: expected.status === 405 ? 'GET, HEAD, POST' : undefined,
    },
    name,
  )
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
