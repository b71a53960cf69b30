/**
 * A sidecar in front of a recording upstream, and the question whether it is what it was before.
 *
 * @module
 */
import type { Test } from 'tap'
import type { UpstreamOutcome } from '../../src/forward/upstream-fault.ts'
import { eventually } from './eventually.ts'
import { type RawClient, type RawResponse, rawClient } from './raw-client.ts'
import { OK, type RecordingUpstream, recordingUpstream, type UpstreamHooks } from './recording-upstream.ts'
import { startSidecar, type TestSidecar, type TestSidecarOptions } from './sidecar.ts'

/** A sidecar and what stands behind it. */
export interface Proxied {
  readonly upstream: RecordingUpstream
  readonly sidecar: TestSidecar
  /** The head of a request with a good token: `head('PUT /a', 'Content-Length: 1')`. */
  head(methodAndTarget: string, ...lines: readonly string[]): string
  /** Connects and sends a head, and text behind it. */
  request(methodAndTarget: string, lines?: readonly string[], body?: string): Promise<RawClient>
  /** How many requests ended so. */
  outcome(outcome: UpstreamOutcome): Promise<number>
  /** Fails unless nothing is left over and the next request is answered. */
  recovers(): Promise<void>
}

/** How a sidecar and its upstream are to be. */
export interface ProxiedOptions extends Omit<TestSidecarOptions, 'upstreamUrl'> {
  readonly hooks?: UpstreamHooks
}

/** Starts both. */
export async function startProxied(t: Test, options: ProxiedOptions = {}): Promise<Proxied> {
  const upstream = await recordingUpstream(t, options.hooks)
  const sidecar = await startSidecar(t, {
    ...options,
    upstreamUrl: upstream.url,
    settings: { 'shutdown-deadline-seconds': '1', ...options.settings },
  })
  const head: Proxied['head'] = (methodAndTarget, ...lines) =>
    [
      `${methodAndTarget} HTTP/1.1`,
      'Host: storage.example',
      `Authorization: Bearer ${sidecar.token}`,
      ...lines,
      '',
      '',
    ].join('\r\n')
  return {
    upstream,
    sidecar,
    head,
    async request(methodAndTarget, lines = [], body = '') {
      const client = await rawClient(t, sidecar.port)
      client.send(head(methodAndTarget, ...lines) + body)
      return client
    },
    outcome: (outcome) => outcomes(sidecar, outcome),
    async recovers() {
      upstream.reply(OK)
      const client = await rawClient(t, sidecar.port)
      client.send(head('GET /afterwards', 'Connection: close'))
      const response = await client.response()
      t.equal(response.status, 200, 'the next request is answered')
      t.equal(response.body.toString(), 'ok', 'with its own answer')
      await idle(sidecar)
      await upstream.until(() => upstream.open() <= 1, 'its connections to be closed or unused')
    },
  }
}

/** How many requests to the upstream at `/`, or at another prefix, ended so. */
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

/** What every answer of the sidecar to a fault must be. */
export function isFaultAnswer(
  t: Test,
  response: RawResponse,
  { status, code, error }: { readonly status: number; readonly code: string; readonly error: string },
): void {
  t.equal(response.status, status)
  t.equal(JSON.parse(response.body.toString()).code, code)
  t.equal(response.headers['content-type'], 'application/json')
  t.equal(response.headers['content-length'], String(response.body.length))
  t.equal(response.headers['cache-control'], 'no-store')
  t.equal(response.headers['proxy-status'], `storage-auth-sidecar; error=${error}`)
  t.equal(response.headers['retry-after'] !== undefined, status === 503, 'a 503 says when to come again')
}
