/**
 * The guard: `npm run bench -- --check` fails when a request has become more than 15 % dearer.
 *
 * What is compared is the ratio of two CPU times in one run, the sidecar's to stock http-proxy's, with a committed
 * baseline: a slow or busy machine slows both. Load and upstream are the suite's own, so that it means the same
 * wherever Node and npm are. The ratio is the median of alternating rounds; a failure must be found three times over.
 *
 * @module
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { BenchOptions } from './command-line.ts'
import { type Lab, openLab, type Running } from './lab/lab.ts'
import { freePort, listening } from './lab/ports.ts'
import { cpuMicroseconds } from './lab/proc.ts'
import { type Requests, requestText, writeRequests } from './lab/requests.ts'
import { median } from './lab/statistics.ts'
import { makeTrust, type Trust } from './lab/trust.ts'
import { runClient } from './load/load.ts'
import { checkPeer } from './peers/check.ts'
import { bare, stock } from './peers/node-peers.ts'
import type { Peer } from './peers/peer.ts'
import { sidecar } from './peers/sidecar.ts'
import { judge, TOLERANCE } from './report/guard-verdict.ts'

/** What is committed. */
export interface Baseline {
  /** CPU time of the sidecar by that of stock http-proxy. */
  readonly ratio: number
  /** Node's version and the day, for whoever wonders. */
  readonly node: string
  readonly date: string
}

const ATTEMPTS = 3
const ROUNDS = 5
const FILE = join(import.meta.dirname, 'baseline.json')

/** Runs the guard; false when it found the sidecar too dear every time. */
export async function runGuard({ writeBaseline }: Pick<BenchOptions, 'writeBaseline'>): Promise<boolean> {
  const lab = openLab()
  const trust = makeTrust(lab)
  const upstreamPort = await freePort()
  // The upstream is on the load's core.
  const onLoadsCore: Lab = { ...lab, run: (_core, ...rest) => lab.run(1, ...rest) }
  bare.start({ lab: onLoadsCore, trust, port: upstreamPort, upstreamPort })
  await listening(upstreamPort)

  const measure = () => ratioOf(lab, trust, upstreamPort)
  if (writeBaseline) {
    const ratio = Number(median([await measure(), await measure(), await measure()]).toFixed(3))
    const date = new Date().toISOString().slice(0, 10)
    writeFileSync(
      FILE,
      `${JSON.stringify({ ratio, node: process.versions.node, date } satisfies Baseline, null, 2)}\n`,
    )
    console.log(`baseline written: ${ratio}`)
    return true
  }
  const { ratio: baseline }: Baseline = JSON.parse(readFileSync(FILE, 'utf8'))
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const ratio = await measure()
    const verdict = judge(ratio, baseline)
    const percent = (100 * (ratio / baseline - 1)).toFixed(0)
    console.log(
      `CPU per request, sidecar / stock http-proxy: ${ratio.toFixed(3)}; baseline ${baseline} (${percent} %): ${verdict}`,
    )
    if (verdict === 'much cheaper')
      console.log('renew the baseline: npm run bench -- --check --write-baseline')
    if (verdict !== 'too dear') return true
  }
  console.log(`more than ${TOLERANCE * 100} % dearer than the baseline, ${ATTEMPTS} times over`)
  return false
}

async function ratioOf(lab: Lab, trust: Trust, upstreamPort: number): Promise<number> {
  const requests = writeRequests(lab, 'guard', [requestText({ token: trust.mint('ES256') })])
  const started: { running: Running; port: number }[] = []
  try {
    for (const peer of [sidecar(), stock] satisfies Peer[]) {
      const port = await freePort()
      const running = peer.start({ lab, trust, port, upstreamPort })
      started.push({ running, port })
      await listening(port)
      await checkPeer(peer, trust, port)
      await cost(lab, running, port, requests) // warm-up
      await cost(lab, running, port, requests)
    }
    const ratios: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const micros = new Map<(typeof started)[number], number>()
      for (const one of round % 2 === 0 ? started : started.toReversed()) {
        micros.set(one, await cost(lab, one.running, one.port, requests))
      }
      const [ours = Number.NaN, stocks = Number.NaN] = started.map((one) => micros.get(one) ?? Number.NaN)
      ratios.push(ours / stocks)
    }
    return median(ratios)
  } finally {
    await Promise.all(started.map(({ running }) => running.stop()))
  }
}

/** CPU microseconds per request over a second. */
async function cost(lab: Lab, { pid }: Running, port: number, requests: Requests): Promise<number> {
  const before = cpuMicroseconds(pid)
  const {
    requests: answered,
    refused,
    failed,
  } = await runClient(lab, { port, requests, connections: 50, seconds: 1 })
  if (refused + failed > 0 || answered === 0)
    throw new Error(`${refused} refused, ${failed} failed of ${answered}`)
  return (cpuMicroseconds(pid) - before) / answered
}
