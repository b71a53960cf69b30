/**
 * Latency where there is room: requests come at a constant rate, half of what the sidecar can do on this machine.
 *
 * @module
 */
import type { Scenario } from '../bench.ts'
import { compare } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import { load } from '../load/load.ts'
import { haproxy } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { sidecar } from '../peers/sidecar.ts'
import { only } from '../report/figures.ts'

export const halfLoad: Scenario = {
  name: 'half-load',
  async run(bench) {
    const { lab, trust } = bench
    const requests = writeRequests(lab, 'half-load', [requestText({ token: trust.mint('ES256') })])
    const common = { requests, connections: 50 }
    const saturated = await compare({ ...bench, rounds: 1 }, [
      { peer: sidecar(), load: (port, seconds) => load(lab, { ...common, port, seconds }) },
    ])
    const rate = Math.round((saturated[0]?.figures.perSecond ?? 0) / 2)
    const rows = await compare(
      bench,
      [sidecar(), nginx, haproxy].map((peer) => ({
        peer,
        load: (port, seconds) => load(lab, { ...common, port, seconds, rate }),
      })),
    )
    return {
      name: 'half-load',
      title: 'Latency at half load',
      note:
        `${rate} requests a second for everybody, half of what the sidecar can do here. They are sent in steps of ` +
        'a millisecond, and one that waits for a free connection waits on the clock.',
      rows: only(rows, 'p50', 'p99', 'cpuMicros', 'perSecond'),
    }
  },
}
