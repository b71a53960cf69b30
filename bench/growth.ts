/**
 * The scenarios of cost that must grow no faster than the work. Together they are the report
 * `npm run bench -- --only growth`.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import { type Bench, compare, type Row, type Section, takesPart } from './compare.ts'
import { cpuMicroseconds, listening, type Running, residentMegabytes } from './lab.ts'
import { requestText, writeRequests } from './load.ts'
import { loading } from './loading.ts'
import { pauses } from './pauses.ts'
import { envoy, haproxy, limit, nginx, type Peer, sidecar, sidecarWith } from './peers.ts'
import { connections, entrant } from './requests.ts'
import { scrapes } from './scrapes.ts'
import { uploads } from './transfers.ts'

/** Twice the places of the sidecar's cache. */
const TOKENS = 20_000
export const FEW_LINES = 10
export const MANY_LINES = 60

export const GROWTH = {
  idle,
  loading,
  scrapes,
  evictions,
  'header-lines': headerLines,
  uploads,
  connections,
  pauses,
}

/** Processes that nobody uses, all at the same time. */
async function idle(bench: Bench): Promise<Section> {
  const settleMs = bench.quick ? 3000 : 15_000
  const seconds = bench.quick ? 5 : 90
  const processes: { readonly name: string; readonly running: Running }[] = []
  const start = async (name: string, peer: Peer) => {
    const port = await freePort()
    const running = await peer.start({ ...bench, port, upstreamPort: bench.smallUpstream })
    processes.push({ name, running })
    await listening(port)
  }
  try {
    for (const peer of [sidecar, envoy, nginx, haproxy].filter((peer) => takesPart(bench, peer))) {
      await start(peer.name, peer)
    }
    for (const workers of [2, 8]) {
      await start(`sidecar, ${workers} workers`, sidecarWith({ SIDECAR_WORKERS: String(workers) }))
    }
    await sleep(settleMs)
    const before = processes.map(({ running }) => cpuMicroseconds(running))
    await sleep(seconds * 1000)
    const rows = processes.map(({ name, running }, index): Row => {
      const used = (cpuMicroseconds(running) - (before[index] ?? 0)) / 1e6
      return { name, figures: { 'CPU s/h': (used / seconds) * 3600, 'RSS MB': residentMegabytes(running) } }
    })
    return { title: 'Idle processes', rows }
  } finally {
    await Promise.all(processes.map(({ running }) => running.stop()))
  }
}

/** More tokens than the cache holds. */
async function evictions(bench: Bench): Promise<Section> {
  const texts = Array.from({ length: TOKENS }, () => requestText(bench.trust.mint()))
  const requests = writeRequests(bench.lab, texts)
  const entrants = [sidecar, haproxy].map((peer) => entrant(bench, peer, { requests }))
  return { title: `${TOKENS} tokens in turn, twice the cache`, rows: await compare(bench, entrants) }
}

/** What a request costs with few lines in its head, and with many. */
async function headerLines(bench: Bench): Promise<Section> {
  const token = bench.trust.mint()
  const rows: Row[] = []
  for (const count of [FEW_LINES, MANY_LINES]) {
    const lines = Array.from({ length: count }, (_, index) => `X-Line-${index}: some value of a line`)
    const requests = writeRequests(bench.lab, [requestText(token, ...lines)])
    const entrants = [sidecar, limit, envoy].map((peer) =>
      entrant(bench, peer, { requests }, `${count} lines, ${peer.name}`),
    )
    rows.push(...(await compare(bench, entrants)))
  }
  return { title: 'Header lines', rows }
}
