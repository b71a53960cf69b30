/** A sidecar in front of a recording upstream, and checks that apply to every exchange. */
import type { ConnectionOptions } from 'node:tls'
import type { Test } from 'tap'
import type { UpstreamOutcome } from '../../src/proxy/upstream-errors.ts'
import { eventually } from './eventually.ts'
import { type RawClient, type RawResponse, rawClient, rawTlsClient } from './raw-client.ts'
import { OK, type RecordingUpstream, recordingUpstream, type UpstreamHooks } from './recording-upstream.ts'
import { startSidecar, type TestSidecar, type TestSidecarOptions } from './sidecar.ts'

/** A sidecar and its upstream. */
export interface Setup {
  readonly upstream: RecordingUpstream
  readonly sidecar: TestSidecar
  /** The line `Authorization` with a valid token and its line end. */
  readonly authorization: string
  /** The head of a request with a valid token: `head('PUT /a', 'Content-Length: 1')`. */
  head(methodAndTarget: string, ...lines: readonly string[]): string
  /** A new connection to the sidecar. */
  connect(): Promise<RawClient>
  /** Connects and sends bytes. */
  send(bytes: string | Uint8Array): Promise<RawClient>
  /** Connects and sends a head, and text after it. */
  request(methodAndTarget: string, lines?: readonly string[], body?: string): Promise<RawClient>
  /** Sends bytes on a new connection and takes one response. */
  ask(bytes: string | Uint8Array, options?: { readonly head?: boolean }): Promise<RawResponse>
  /** Sends bytes on a new connection and waits for its end; returns everything received. */
  exchange(bytes: string | Uint8Array): Promise<string>
  /** Number of requests with this outcome. */
  outcome(outcome: UpstreamOutcome): Promise<number>
  /** Checks that the upstream saw this many requests, all of them complete, and that the sidecar forwards another one. */
  upstreamSaw(t: Test, requests: number): Promise<void>
  /** Fails unless no request or connection is left and the next request gets its response. */
  recovers(): Promise<void>
}

/** Options of a sidecar and its upstream. */
export interface SetupOptions extends Omit<TestSidecarOptions, 'upstreamUrl'> {
  readonly hooks?: UpstreamHooks
  /** How clients connect if the settings enable TLS. */
  readonly tls?: ConnectionOptions
}

/** Starts both. */
export async function startSetup(t: Test, { hooks, tls, ...options }: SetupOptions = {}): Promise<Setup> {
  const upstream = await recordingUpstream(t, hooks)
  const sidecar = await startSidecar(t, {
    ...options,
    upstreamUrl: upstream.url,
    settings: { 'shutdown-deadline-seconds': '1', ...options.settings },
  })
  const authorization = `Authorization: Bearer ${sidecar.token}\r\n`
  const connect: Setup['connect'] = () =>
    tls === undefined ? rawClient(t, sidecar.port) : rawTlsClient(t, sidecar.port, tls)
  const head: Setup['head'] = (methodAndTarget, ...lines) =>
    `${methodAndTarget} HTTP/1.1\r\nHost: storage.example\r\n${authorization}${[...lines, '', ''].join('\r\n')}`
  const send = async (bytes: string | Uint8Array) => {
    const client = await connect()
    client.send(bytes)
    return client
  }
  return {
    upstream,
    sidecar,
    authorization,
    head,
    connect,
    send,
    request: (methodAndTarget, lines = [], body = '') => send(head(methodAndTarget, ...lines) + body),
    async ask(bytes, how) {
      const client = await send(bytes)
      const response = await client.response(how)
      client.socket.destroy()
      return response
    },
    async exchange(bytes) {
      const client = await send(bytes)
      await client.closed()
      return client.received().toString('latin1')
    },
    outcome: (outcome) => outcomes(sidecar, outcome),
    async upstreamSaw(t, requests) {
      const client = await send(head('GET /still-there'))
      t.equal((await client.response()).status, 200, 'the sidecar still forwards')
      client.socket.destroy()
      const seen = upstream.requests.splice(0)
      t.same(
        [seen.length - 1, seen.at(-1)?.target],
        [requests, '/still-there'],
        'the upstream saw the expected requests only',
      )
    },
    async recovers() {
      upstream.reply(OK)
      const client = await send(head('GET /afterwards', 'Connection: close'))
      const response = await client.response()
      t.equal(response.status, 200, 'the next request gets a response')
      t.equal(response.body.toString(), 'ok', 'with its own body')
      await idle(sidecar)
      await upstream.until(() => upstream.open() <= 1, 'its connections to be closed or unused')
    },
  }
}

/** Number of requests with this outcome to the upstream at `/` or another prefix. */
export function outcomes(sidecar: TestSidecar, outcome: UpstreamOutcome, prefix = '/'): Promise<number> {
  return sidecar.metric(`auth_sidecar_upstream_requests_total{upstream="${prefix}",outcome="${outcome}"}`)
}

/** Waits until no request is in flight or queued, and at most one connection to an upstream is left. */
export async function idle(sidecar: TestSidecar): Promise<void> {
  await eventually(async () => {
    const inFlight = await sidecar.metric('auth_sidecar_requests_in_flight')
    const queued = await sidecar.metric('auth_sidecar_upstream_queue{upstream="/"}')
    const connections = await sidecar.metric('auth_sidecar_upstream_connections{upstream="/"}')
    return inFlight === 0 && queued === 0 && connections <= 1
  }, 'nothing to be in flight, queued or connected')
}
