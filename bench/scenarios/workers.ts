/**
 * One process and two that share the listener: what sharing costs on one core, and what a second core brings.
 *
 * @module
 */
import type { Bench, Scenario } from '../bench.ts'
import { compare, type Entrant } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import { load } from '../load/load.ts'
import { sidecar } from '../peers/sidecar.ts'
import { only } from '../report/figures.ts'

const TWO = { SIDECAR_WORKERS: '2' }

export const workers: Scenario = {
  name: 'workers',
  async run(bench) {
    const rows = await compare(bench, [
      entrant(bench, '1 worker, first core', sidecar()),
      entrant(bench, '2 workers, first core', sidecar('ES256', TWO)),
      entrant(bench, '1 worker, both cores', sidecar('ES256', {}, 'both')),
      entrant(bench, '2 workers, both cores', sidecar('ES256', TWO, 'both')),
    ])
    return {
      name: 'workers',
      title: 'Workers',
      note:
        '1 KiB GET with a hot token on 50 connections. Load and upstream have the second core in each case: with both ' +
        'cores, all of them share two, and a second worker can bring no more than these leave over.',
      rows: only(rows, 'cpuMicros', 'perSecond', 'p50', 'p99', 'rss'),
    }
  },
}

function entrant({ lab, trust }: Bench, label: string, peer: ReturnType<typeof sidecar>): Entrant {
  const requests = writeRequests(lab, `workers-${label}`, [requestText({ token: trust.mint('ES256') })])
  return { peer, label, load: (port, seconds) => load(lab, { port, requests, connections: 50, seconds }) }
}
