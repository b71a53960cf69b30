/**
 * 1 KiB GETs with one token on kept-alive connections: the cost of a request where everything is known.
 *
 * @module
 */
import type { Bench, Scenario } from '../bench.ts'
import { compare, type Entrant } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import { load } from '../load/load.ts'
import { haproxy, haproxyJwt } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { bare, fastify, stock } from '../peers/node-peers.ts'
import type { Peer } from '../peers/peer.ts'
import { sidecar } from '../peers/sidecar.ts'
import { only } from '../report/figures.ts'

/** Everybody. */
const PEERS = [sidecar(), nginx, haproxy, haproxyJwt('ES256'), haproxyJwt('RS256'), stock, fastify(), bare]

export const hotToken: Scenario = {
  name: 'hot',
  async run(bench) {
    const rows = await compare(bench, entrantsOf(bench, PEERS))
    return {
      name: 'hot',
      title: '1 KiB GET, hot token',
      note:
        'GET of 1 KiB, 50 kept-alive connections, one token, as fast as answers come. For `bare-node` nothing is ' +
        'forwarded: no proxy on Node can be cheaper.',
      rows: only(rows, 'cpuMicros', 'toNginx', 'toStock', 'perSecond', 'p50', 'p99', 'rss'),
    }
  },
}

/** Each peer with a good token of the kind it checks. */
export function entrantsOf(
  { lab, trust }: Bench,
  peers: readonly Peer[],
  connections = 50,
  close = false,
): Entrant[] {
  return peers.map((peer) => {
    const request = requestText({ token: trust.mint(peer.checks ?? 'ES256'), close })
    const name = `${peer.name}-${connections}${close ? '-close' : ''}`
    const requests = writeRequests(lab, name, [request])
    return { peer, load: (port, seconds) => load(lab, { port, requests, connections, seconds }) }
  })
}
