/**
 * The scenarios of cost that must grow no faster than the work: an idle process, scrapes with many upstreams,
 * more tokens than the cache holds, header lines, uploads, and workers.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import { type Bench, compare, type Figures, type Row, type Section, takesPart } from './compare.ts'
import { ask, cpuMicroseconds, listening, residentMegabytes } from './lab.ts'
import { requestText, uploadText, writeRequests } from './load.ts'
import {
  envoy,
  haproxy,
  limit,
  nginx,
  type Peer,
  sidecar,
  sidecarWith,
  startObjectUpstream,
} from './peers.ts'
import { entrant } from './requests.ts'
import { MAIN } from './trust.ts'

/** Twice the places of the sidecar's cache. */
const TOKENS = 20_000
const UPLOAD_BYTES = 1024
const FEW_LINES = 10
const MANY_LINES = 60
const MANY_UPSTREAMS = 500
const LOOPBACK = { host: '127.0.0.1' }

export async function growth(bench: Bench): Promise<Section> {
  const rows = [
    ...(await idle(bench)),
    ...(await scrapes(bench)),
    ...(await smallRequests(bench)),
    ...(await workers(bench)),
  ]
  return { title: 'Cost that grows no faster than the work', rows }
}

async function idle(bench: Bench): Promise<Row[]> {
  const settleMs = bench.quick ? 3000 : 15_000
  const seconds = bench.quick ? 5 : 120
  const rows: Row[] = []
  for (const peer of [sidecar, envoy, nginx, haproxy].filter((peer) => takesPart(bench, peer))) {
    const figures = await whileRunning(bench, peer, async (running) => {
      await sleep(settleMs)
      const before = cpuMicroseconds(running)
      await sleep(seconds * 1000)
      const used = (cpuMicroseconds(running) - before) / 1e6
      return { 'CPU s/h': (used / seconds) * 3600, 'RSS MB': residentMegabytes(running) }
    })
    rows.push({ name: `idle, ${peer.name}`, figures })
  }
  return rows
}

/** The CPU time of a scrape, by the mean of some. */
async function scrapes(bench: Bench): Promise<Row[]> {
  const upstreams = Array.from({ length: MANY_UPSTREAMS }, (_, index) => ({
    prefix: index === 0 ? '/' : `/service-${index}/`,
    url: `http://127.0.0.1:${bench.smallUpstream}`,
  }))
  const config = join(bench.lab.directory, 'many-upstreams.yaml')
  writeFileSync(config, JSON.stringify({ upstreams, listen: LOOPBACK, admin: LOOPBACK }))
  const adminPort = await freePort()
  const peer: Peer = {
    ...sidecar,
    start: ({ lab, node, trust, port }) =>
      lab.run(0, node, [MAIN, 'serve', '--config', config, ...trust.flags], {
        SIDECAR_LISTEN_PORT: String(port),
        SIDECAR_ADMIN_PORT: String(adminPort),
      }),
  }
  const count = bench.quick ? 3 : 20
  const figures = await whileRunning(bench, peer, async (running) => {
    await ask(adminPort, '/metrics')
    const before = cpuMicroseconds(running)
    for (let scrape = 0; scrape < count; scrape++) {
      await ask(adminPort, '/metrics')
    }
    return { 'CPU µs': (cpuMicroseconds(running) - before) / count }
  })
  return [{ name: `scrape, ${MANY_UPSTREAMS} upstreams`, figures }]
}

async function smallRequests(bench: Bench): Promise<Row[]> {
  const { lab, trust } = bench
  const token = trust.mint()
  const withLines = (count: number) => {
    const lines = Array.from({ length: count }, (_, index) => `X-Line-${index}: some value of a line`)
    return writeRequests(lab, [requestText(token, ...lines)])
  }
  const many = Array.from({ length: TOKENS }, () => requestText(trust.mint()))
  const kinds = [
    [`${TOKENS} tokens`, writeRequests(lab, many), [sidecar, haproxy]],
    [`${FEW_LINES} header lines`, withLines(FEW_LINES), [sidecar, limit, envoy]],
    [`${MANY_LINES} header lines`, withLines(MANY_LINES), [sidecar, limit, envoy]],
    ['1 KiB up', writeRequests(lab, [uploadText(token, UPLOAD_BYTES)]), [sidecar, envoy, nginx]],
  ] as const
  // The small upstream responds before it has read a body, which costs the connection.
  const upstreamPort = await startObjectUpstream(lab)
  const rows: Row[] = []
  for (const [kind, requests, peers] of kinds) {
    const entrants = peers.map((peer) => entrant(bench, peer, { requests }, `${kind}, ${peer.name}`))
    rows.push(...(await compare(bench, entrants, { upstreamPort })))
  }
  return rows
}

async function workers(bench: Bench): Promise<Row[]> {
  const rows: Row[] = []
  for (const count of [2, 8]) {
    const peer = sidecarWith({ SIDECAR_WORKERS: String(count) })
    const figures = await whileRunning(bench, peer, async (running) => {
      await sleep(bench.quick ? 2000 : 10_000)
      return { 'RSS MB': residentMegabytes(running) }
    })
    rows.push({ name: `${count} workers`, figures })
  }
  return rows
}

type Measured = Awaited<ReturnType<Peer['start']>>

async function whileRunning(
  bench: Bench,
  peer: Peer,
  measure: (running: Measured) => Promise<Figures>,
): Promise<Figures> {
  const port = await freePort()
  const running = await peer.start({ ...bench, port, upstreamPort: bench.smallUpstream })
  try {
    await listening(port)
    return await measure(running)
  } finally {
    await running.stop()
  }
}
