/**
 * Calls the room of tracing as the core does, without the rest of a request: `node tracing-calls.ts`.
 * Prints the microseconds of a request, by kind, as JSON: beside a whole request, they are lost in the noise.
 */
import { Socket } from 'node:net'
import { createPeers } from '../src/client/client-address.ts'
import type { SidecarRequest } from '../src/client/request.ts'
import { loadConfig } from '../src/config/load.ts'
import { admit } from '../src/gate/admission.ts'
import type { SpanQueue } from '../src/tracing/span-queue.ts'
import { Tracing } from '../src/tracing/tracing.ts'
import { requestOn } from '../test/support/request-context.ts'
import { median } from './lab.ts'

const CALLS = 200
const ROUNDS = 1000
const WARM_UP = 500

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7'
const KINDS = {
  'without a trace': undefined,
  'not sampled by its caller': `${TRACE}-00`,
  'sampled, without sending': `${TRACE}-01`,
} as const

const loaded = loadConfig({ env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9000' }, flags: {} })
if (!loaded.ok) {
  throw new Error('the settings are not valid')
}
const { config } = loaded.value
const queue: Pick<SpanQueue, 'add' | 'dropped' | 'stop'> = { add() {}, dropped: 0, stop: async () => {} }
const tracing = new Tracing({ config, now: Date.now, ratio: 0, trustIncoming: true, queue })
const peer = createPeers([])({ remoteAddress: '127.0.0.1' }, false, 8080)
const socket = new Socket()

function requestWith(traceparent: string | undefined): SidecarRequest {
  const req = requestOn(socket, peer)
  const headers = ['Host', 'storage.example', 'User-Agent', 'bench', 'Accept', '*/*']
  req.rawHeaders = traceparent === undefined ? headers : [...headers, 'traceparent', traceparent]
  req.headers = { host: 'storage.example', ...(traceparent !== undefined && { traceparent }) }
  Object.assign(req, { method: 'GET', url: '/bucket/object', httpVersionMajor: 1, httpVersionMinor: 1 })
  const admission = admit(req, config.limits)
  if (!admission.ok) {
    throw new Error('the request is not valid')
  }
  const route = { to: 'service', act: 'forward', needsToken: true, label: 'proxy' } as const
  const admitted = admission.value
  req.context.recordHead({ admitted, route, requested: admitted, link: undefined, changesBefore: 0 })
  return req
}

const upstream = { host: '127.0.0.1:9000', pathPrefix: '' }
const end = { status: 200, reason: undefined, seconds: 0.001 }

/** What the core calls for a request. */
function serve(req: SidecarRequest): void {
  tracing.onRequest(req)
  for (const watcher of req.context.watchers) {
    watcher.onForward?.(upstream)
    watcher.onResponse?.(200)
    watcher.onForwardEnd?.('ok')
    watcher.onEnd?.(end)
  }
}

function microseconds(traceparent: string | undefined): number {
  const requests = Array.from({ length: CALLS }, () => requestWith(traceparent))
  const before = process.cpuUsage()
  for (const req of requests) {
    serve(req)
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / CALLS
}

const found = Object.entries(KINDS).map(([kind, traceparent]) => {
  const rounds = Array.from({ length: WARM_UP + ROUNDS }, () => microseconds(traceparent))
  return [kind, median(rounds.slice(WARM_UP))]
})
console.log(JSON.stringify(Object.fromEntries(found)))
