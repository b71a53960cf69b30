/**
 * Connections instead of requests: a new one for each request, and a single one.
 *
 * @module
 */
import type { Scenario } from '../bench.ts'
import { compare } from '../compare.ts'
import { haproxy } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { stock } from '../peers/node-peers.ts'
import { sidecar } from '../peers/sidecar.ts'
import { halved, only } from '../report/figures.ts'
import { entrantsOf } from './hot-token.ts'

const PEERS = [sidecar(), nginx, haproxy, stock]

/** What a connection costs. */
export const connectionPerRequest: Scenario = {
  name: 'connections',
  async run(bench) {
    const rows = await compare(bench, entrantsOf(bench, PEERS, 50, true))
    return {
      name: 'connections',
      title: 'Connection per request',
      note: 'As above, but each request comes on a connection of its own. Upstream connections are kept.',
      rows: only(rows, 'cpuMicros', 'toNginx', 'toStock', 'perSecond', 'p50', 'p99'),
    }
  },
}

/** What a request waits where nothing else is going on. */
export const singleConnection: Scenario = {
  name: 'latency',
  async run(bench) {
    const rows = await compare(bench, entrantsOf(bench, PEERS, 1), { seconds: halved(bench.seconds) })
    return {
      name: 'latency',
      title: 'One connection',
      note: 'As above, but one request at a time on one connection: the latency a proxy adds when it is idle.',
      rows: only(rows, 'p50', 'p99', 'perSecond', 'cpuMicros'),
    }
  },
}
