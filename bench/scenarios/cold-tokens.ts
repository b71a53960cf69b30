/**
 * Every request brings a token that nobody remembers: the cost of verifying and forwarding, for each algorithm.
 *
 * 12,000 tokens take turns, and every cache holds at most 10,000 of the latest: each has been forgotten when it comes
 * again. That nothing was remembered is checked by the sidecar's own metric.
 *
 * @module
 */
import type { Bench, Scenario } from '../bench.ts'
import { compare, type Entrant } from '../compare.ts'
import { metric } from '../lab/metric.ts'
import { freePort } from '../lab/ports.ts'
import { type Requests, requestText, writeRequests } from '../lab/requests.ts'
import { ALGORITHMS, type Algorithm } from '../lab/trust.ts'
import { load } from '../load/load.ts'
import { haproxyJwt } from '../peers/haproxy.ts'
import { fastify } from '../peers/node-peers.ts'
import type { Peer } from '../peers/peer.ts'
import { sidecar } from '../peers/sidecar.ts'
import { halved, only } from '../report/figures.ts'

const TOKENS = 12_000
/** More than can be under way at the end of a round, so that the next begins behind them. */
const MARGIN = 200

export const coldTokens: Scenario = {
  name: 'cold',
  async run(bench) {
    const entrants: Entrant[] = []
    for (const alg of bench.quick ? (['ES256'] as const) : ALGORITHMS)
      entrants.push(...(await entrantsFor(bench, alg)))
    const rows = await compare(bench, entrants, { seconds: halved(bench.seconds) })
    return {
      name: 'cold',
      title: 'Cold tokens',
      note:
        'Each request brings a token that is not remembered: it is verified and forwarded. HAProxy has no EdDSA, ' +
        'and remembers nothing anyway.',
      rows: only(rows, 'cpuMicros', 'perSecond', 'p50', 'p99'),
    }
  },
}

async function entrantsFor({ lab, trust }: Bench, alg: Algorithm): Promise<Entrant[]> {
  const tokens = Array.from({ length: TOKENS }, () => requestText({ token: trust.mint(alg) }))
  const requests = writeRequests(lab, `cold-${alg}`, tokens)
  const adminPort = await freePort()
  const ours: Entrant = inTurns(
    lab,
    requests,
    `sidecar ${alg}`,
    sidecar(alg, { SIDECAR_ADMIN_PORT: `${adminPort}` }),
  )
  const entrants: Entrant[] = [
    {
      ...ours,
      async load(port, seconds) {
        const before = await metric(adminPort, 'auth_sidecar_token_cache_hits_total')
        const result = await ours.load(port, seconds)
        const hits = (await metric(adminPort, 'auth_sidecar_token_cache_hits_total')) - before
        if (hits > result.requests / 100)
          throw new Error(`${hits} of ${result.requests} tokens were remembered`)
        return result
      },
    },
    inTurns(lab, requests, `fastify ${alg}`, fastify(alg)),
  ]
  if (alg !== 'EdDSA') entrants.push(inTurns(lab, requests, `haproxy ${alg}`, haproxyJwt(alg)))
  return entrants
}

function inTurns(lab: Bench['lab'], requests: Requests, label: string, peer: Peer): Entrant {
  let start = 0
  return {
    peer,
    label,
    async load(port, seconds) {
      const result = await load(lab, { port, requests, connections: 50, seconds, start })
      start += result.requests + MARGIN
      return result
    },
  }
}
