/**
 * How long a start takes, from the start of the process to the first 200 of `/readyz`, and what an idle sidecar holds
 * in memory.
 *
 * @module
 */
import { get } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Scenario } from '../bench.ts'
import type { Running } from '../lab/lab.ts'
import { freePort } from '../lab/ports.ts'
import { residentMegabytes } from '../lab/proc.ts'
import { median } from '../lab/statistics.ts'
import { sidecar } from '../peers/sidecar.ts'

export const start: Scenario = {
  name: 'start',
  async run(bench) {
    const starts = bench.quick ? 3 : 11
    const idleSeconds = bench.quick ? 2 : 10
    const times: number[] = []
    for (let round = 0; round < starts; round++) {
      const [running, milliseconds] = await startOne(bench)
      times.push(milliseconds)
      await running.stop()
    }
    const [running] = await startOne(bench)
    await sleep(idleSeconds * 1000)
    const rss = residentMegabytes(running.pid)
    await running.stop()
    const figures = { readyMs: median(times), readyWorstMs: Math.max(...times), samples: starts, rss }
    return {
      name: 'start',
      title: 'Start and idle memory',
      note: `From exec to the first 200 of \`/readyz\`; resident memory after ${idleSeconds} s without a request.`,
      rows: [{ name: 'sidecar', figures }],
    }
  },
}

async function startOne({ lab, trust, smallUpstream }: Bench): Promise<[Running, number]> {
  const [port, adminPort] = [await freePort(), await freePort()]
  const peer = sidecar('ES256', { SIDECAR_ADMIN_PORT: String(adminPort) })
  const started = performance.now()
  const running = peer.start({ lab, trust, port, upstreamPort: smallUpstream })
  while (!(await isReady(adminPort))) {
    if (performance.now() - started > 10_000) throw new Error('the sidecar does not become ready')
    await sleep(2)
  }
  return [running, performance.now() - started]
}

function isReady(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    get({ port, host: '127.0.0.1', path: '/readyz', agent: false }, (res) => {
      res.resume()
      resolve(res.statusCode === 200)
    }).on('error', () => resolve(false))
  })
}
