/** What tracing costs: of a request that is not sampled, and of one that is, with a collector and with one that hangs. */
import { join } from 'node:path'
import { freePort } from '../test/support/free-port.ts'
import { type Bench, compare, type Entrant, type Section } from './compare.ts'
import { type Lab, listening } from './lab.ts'
import { requestText, writeRequests } from './load.ts'
import { type Peer, sidecar, sidecarWith } from './peers.ts'
import { entrant } from './requests.ts'

const TRACE = 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7'
/** Fewer spans a second than would wait in vain: all of them are sent. */
const RATE = 4000

export async function tracing(bench: Bench): Promise<Section> {
  const { lab, trust } = bench
  const traced = sidecarWith({ SIDECAR_TRACING_ENDPOINT: await startCollector(lab, 'take') })
  const hanging = sidecarWith({ SIDECAR_TRACING_ENDPOINT: await startCollector(lab, 'hang') })
  const token = trust.mint()
  const send = (peer: Peer, label: string, ...headers: readonly string[]): Entrant => {
    const requests = writeRequests(lab, [requestText(token, ...headers)])
    return entrant(bench, peer, { requests, rate: RATE }, label)
  }
  const rows = await compare(bench, [
    send(sidecar, 'off', `${TRACE}-01`),
    send(traced, 'not sampled', `${TRACE}-00`),
    send(traced, 'sampled', `${TRACE}-01`),
    send(hanging, 'sampled, the collector hangs', `${TRACE}-01`),
  ])
  const calls = Object.entries((await lab.ask('tracing-calls.ts', {})) as Record<string, number>)
  const ofCalls = calls.map(([kind, microseconds]) => ({
    name: `tracing alone: ${kind}`,
    figures: { 'CPU µs': microseconds },
  }))
  return { title: `Tracing, at ${RATE} requests a second`, rows: [...rows, ...ofCalls] }
}

async function startCollector(lab: Lab, how: 'take' | 'hang'): Promise<string> {
  const port = await freePort()
  lab.run(1, process.execPath, [join(import.meta.dirname, 'collector.js'), String(port), how])
  await listening(port)
  return `http://127.0.0.1:${port}/v1/traces`
}
