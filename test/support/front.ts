/**
 * A sidecar in front of a recording upstream, and what must hold of everything that crosses them.
 *
 * @module
 */
import type { Test } from 'tap'
import { type RawClient, type RawResponse, rawClient } from './raw-client.ts'
import { type RecordingUpstream, recordingUpstream, type UpstreamHooks } from './recording-upstream.ts'
import { startSidecar, type TestSidecar, type TestSidecarOptions } from './sidecar.ts'

/** A sidecar with an upstream behind it. */
export interface Front {
  readonly upstream: RecordingUpstream
  readonly sidecar: TestSidecar
  /** The line `Authorization` with a good token, ended. */
  readonly authorization: string
  /** A new connection to the sidecar. */
  connect(): Promise<RawClient>
  /** Sends bytes on a new connection and takes one response. */
  ask(bytes: string | Uint8Array, options?: { readonly head?: boolean }): Promise<RawResponse>
  /** Sends bytes on a new connection and waits for its end; gives everything that came back. */
  exchange(bytes: string | Uint8Array): Promise<string>
  /** Checks that the upstream saw this many requests, all of them whole, and that the sidecar forwards another one. */
  upstreamSaw(t: Test, requests: number): Promise<void>
}

/** Starts both. */
export async function startFront(
  t: Test,
  options: Omit<TestSidecarOptions, 'upstreamUrl'> & { readonly hooks?: UpstreamHooks } = {},
): Promise<Front> {
  const upstream = await recordingUpstream(t, options.hooks)
  const sidecar = await startSidecar(t, { ...options, upstreamUrl: upstream.url })
  const authorization = `Authorization: Bearer ${sidecar.token}\r\n`
  const connect = () => rawClient(t, sidecar.port)
  return {
    upstream,
    sidecar,
    authorization,
    connect,
    async ask(bytes, how) {
      const client = await connect()
      client.send(bytes)
      const response = await client.response(how)
      client.socket.destroy()
      return response
    },
    async exchange(bytes) {
      const client = await connect()
      client.send(bytes)
      await client.closed()
      return client.received().toString('latin1')
    },
    async upstreamSaw(t, requests) {
      const client = await connect()
      client.send(`GET /still-there HTTP/1.1\r\nHost: h\r\n${authorization}\r\n`)
      t.equal((await client.response()).status, 200, 'the sidecar goes on forwarding')
      client.socket.destroy()
      const seen = upstream.requests.splice(0)
      t.same(
        [seen.length - 1, seen.at(-1)?.target],
        [requests, '/still-there'],
        'the upstream saw what it should have seen and nothing else',
      )
    },
  }
}

/** What an answer of the sidecar's own is expected to be. */
export interface OwnAnswer {
  readonly status: number
  /** The error code; without it the answer is no error. */
  readonly code?: string
  /** In `Proxy-Status`, where it matters which. */
  readonly details?: string
  /** It answers a HEAD. */
  readonly head?: boolean
}

/** Checks, in one assertion, everything that holds of each answer the sidecar makes itself. */
export function isOwnAnswer(t: Test, response: RawResponse, expected: OwnAnswer, name: string): void {
  const { status, headers, body } = response
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
      error: /^storage-auth-sidecar; error=[a-z_]+(; details="[a-z_]+")?$/.test(
        headers['proxy-status'] ?? '',
      ),
      details: expected.details && /details="(.*)"$/.exec(headers['proxy-status'] ?? '')?.[1],
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
      error: isError,
      details: expected.details,
      retryAfter: expected.status === 503,
      allow: expected.status === 405 ? 'GET, HEAD, POST' : undefined,
    },
    name,
  )
}

/** A body as JSON; undefined where it is none. */
function json(body: Buffer): object | undefined {
  try {
    const parsed: unknown = JSON.parse(body.toString())
    return typeof parsed === 'object' && parsed !== null ? parsed : undefined
  } catch {
    return undefined
  }
}
