/**
 * Calls the room of tracing as the core does, without the rest of a request: `node tracing-calls.ts JSON`
 * with the URLs of a collector (`collector`) and of one that hangs (`hanging`).
 * Prints the microseconds of a request, by kind, as JSON: beside a whole request, they are lost in the noise.
 */
import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { createPeers } from '../src/client/client-address.ts'
import type { SidecarRequest } from '../src/client/request.ts'
import { loadConfig } from '../src/config/load.ts'
import { admit } from '../src/gate/admission.ts'
import { SpanQueue } from '../src/tracing/span-queue.ts'
import { Tracing } from '../src/tracing/tracing.ts'
import { requestOn } from '../test/support/request-context.ts'
import { median } from './lab.ts'

const CALLS = 200
const ROUNDS = 1000
const WARM_UP = 500

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7'
const UNSAMPLED = {
  'without a trace': undefined,
  'not sampled by its caller': `${TRACE}-00`,
} as const
const SAMPLED = `${TRACE}-01`
/** Their spans are a batch, which is sent during the pause. */
const BATCH = 256
const BATCHES = 50
const PAUSE_MS = 20
const SENDING_ROUNDS = 5

const loaded = loadConfig({ env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9000' }, flags: {} })
if (!loaded.ok) {
  throw new Error('the settings are not valid')
}
const { config } = loaded.value
const tracingWith = (queue: Pick<SpanQueue, 'add' | 'dropped' | 'stop'>) =>
  new Tracing({ config, now: Date.now, ratio: 0, trustIncoming: true, queue })
const alone = tracingWith({ add() {}, dropped: 0, stop: async () => {} })
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
function serve(tracing: Tracing, req: SidecarRequest): void {
  tracing.onRequest(req)
  for (const watcher of req.context.watchers) {
    watcher.onForward?.(upstream, req.context.startedMonotonicMs)
    req.context.recordQueueTime(0.1)
    req.context.recordFirstByteTime(0.5)
    watcher.onResponse?.(200)
    watcher.onForwardEnd?.('ok')
    watcher.onEnd?.(end)
  }
}

function microseconds(traceparent: string | undefined): number {
  const requests = Array.from({ length: CALLS }, () => requestWith(traceparent))
  const before = process.cpuUsage()
  for (const req of requests) {
    serve(alone, req)
  }
  return cpuSince(before) / CALLS
}

function cpuSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before)
  return user + system
}

/** With all that it takes to make a request, to send its spans, and to pause. */
async function withSending(tracing: Tracing, traceparent: string | undefined): Promise<number> {
  const before = process.cpuUsage()
  for (let batch = 0; batch < BATCHES; batch++) {
    for (let request = 0; request < BATCH; request++) {
      serve(tracing, requestWith(traceparent))
    }
    await sleep(PAUSE_MS)
  }
  return cpuSince(before) / (BATCHES * BATCH)
}

/** What a sampled request costs above one that is not. */
async function sampledWith(endpoint: string): Promise<number> {
  const queue = new SpanQueue({ endpoint, log: { warn() {} }, monotonicNow: () => performance.now() })
  const tracing = tracingWith(queue)
  const found: number[] = []
  for (let round = 0; round < SENDING_ROUNDS; round++) {
    const sampled = await withSending(tracing, SAMPLED)
    found.push(sampled - (await withSending(tracing, undefined)))
  }
  await queue.stop()
  return median(found)
}

const found: Record<string, number> = {}
for (const [kind, traceparent] of Object.entries(UNSAMPLED)) {
  const rounds = Array.from({ length: WARM_UP + ROUNDS }, () => microseconds(traceparent))
  found[kind] = median(rounds.slice(WARM_UP))
}
const { collector, hanging } = JSON.parse(process.argv[2] ?? '')
found['sampled'] = await sampledWith(collector)
found['sampled, the collector hangs'] = await sampledWith(hanging)
console.log(JSON.stringify(found))
process.exit() // attempts to send go on for a while
