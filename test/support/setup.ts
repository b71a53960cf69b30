/** A sidecar in front of a recording upstream, and checks that apply to every exchange. */
import type { ConnectionOptions } from 'node:tls'
import type { Test } from 'tap'
import type { UpstreamOutcome } from '../../src/base/errors.ts'
import { eventually } from './eventually.ts'
import { metricsAt } from './prometheus.ts'
import { type RawClient, rawClient, rawTlsClient } from './raw-client.ts'
import { OK, recordingUpstream, type UpstreamHooks } from './recording-upstream.ts'
import { startSidecar, type TestSidecar, type TestSidecarOptions } from './sidecar.ts'

/** Options of a sidecar and its upstream. */
export interface SetupOptions extends Omit<TestSidecarOptions, 'upstreamUrl'> {
  readonly hooks?: UpstreamHooks
  /** How clients connect if the settings enable TLS. */
  readonly tls?: ConnectionOptions
}

export type Setup = Awaited<ReturnType<typeof startSetup>>

/** Starts both. */
export async function startSetup(t: Test, { hooks, tls, ...options }: SetupOptions = {}) {
  const upstream = await recordingUpstream(t, hooks)
  const sidecar = await startSidecar(t, {
    ...options,
    upstreamUrl: upstream.url,
    settings: { 'shutdown-deadline-seconds': '1', ...options.settings },
  })
  const authorization = `Authorization: Bearer ${sidecar.token}\r\n`
  const connect = (): Promise<RawClient> =>
    tls === undefined ? rawClient(t, sidecar.port) : rawTlsClient(t, sidecar.port, tls)
  /** The head of a request with a valid token: `head('PUT /a', 'Content-Length: 1')`. */
  const head = (methodAndTarget: string, ...lines: readonly string[]) =>
    `${methodAndTarget} HTTP/1.1\r\nHost: storage.example\r\n${authorization}${[...lines, '', ''].join('\r\n')}`
  const send = async (bytes: string | Uint8Array) => {
    const client = await connect()
    client.send(bytes)
    return client
  }
  return {
    upstream,
    sidecar,
    /** The line `Authorization` with a valid token and its line end. */
    authorization,
    head,
    connect,
    send,
    /** Connects and sends a head, and text after it. */
    request: (methodAndTarget: string, lines: readonly string[] = [], body = '') =>
      send(head(methodAndTarget, ...lines) + body),
    /** Sends bytes on a new connection and takes one response. */
    async ask(bytes: string | Uint8Array, how?: { readonly head?: boolean }) {
      const client = await send(bytes)
      const response = await client.response(how)
      client.socket.destroy()
      return response
    },
    /** Sends bytes on a new connection; everything received until its end. */
    async exchange(bytes: string | Uint8Array) {
      const client = await send(bytes)
      await client.closed()
      return client.received().toString('latin1')
    },
    outcome: (outcome: UpstreamOutcome) => outcomes(sidecar, outcome),
    /**
     * Checks that the upstream saw so many requests, all complete, and that the sidecar forwards another one.
     */
    async upstreamSaw(t: Test, requests: number) {
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
    /** Fails unless no request or connection is left and the next request gets its response. */
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
    const metric = await metricsAt(sidecar.adminPort)
    const busy =
      metric('auth_sidecar_requests_in_flight') + metric('auth_sidecar_upstream_queue{upstream="/"}')
    return busy === 0 && metric('auth_sidecar_upstream_connections{upstream="/"}') <= 1
  }, 'nothing to be in flight, queued or connected')
}
