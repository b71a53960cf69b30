/**
 * 10,000 tokens, some asked for often and most seldom, after Zipf's law: what a cache of verified tokens is for.
 *
 * @module
 */
import type { Scenario } from '../bench.ts'
import { compare } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import { seeded, zipf } from '../lab/zipf.ts'
import { load } from '../load/load.ts'
import { haproxyJwt } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { fastify, stock } from '../peers/node-peers.ts'
import { sidecar } from '../peers/sidecar.ts'
import { only } from '../report/figures.ts'

const TOKENS = 10_000
const EXPONENT = 1

export const manyTokens: Scenario = {
  name: 'zipf',
  async run(bench) {
    const { lab, trust } = bench
    const tokens = Array.from({ length: TOKENS }, () => requestText({ token: trust.mint('ES256') }))
    const rank = zipf(TOKENS, EXPONENT, seeded(1))
    const order = Array.from({ length: 100_000 }, rank)
    const requests = writeRequests(lab, 'zipf', tokens, { order })
    const eachOnce = writeRequests(lab, 'zipf-once', tokens)
    const rows = await compare(
      bench,
      [sidecar(), nginx, haproxyJwt('ES256'), stock, fastify()].map((peer) => {
        let start = 0
        return {
          peer,
          async load(port, seconds) {
            const common = { port, connections: 50, seconds }
            // The warm-up: until every token has been seen once.
            while (start < TOKENS)
              start += (await load(lab, { ...common, requests: eachOnce, start })).requests
            return load(lab, { ...common, requests })
          },
        }
      }),
    )
    return {
      name: 'zipf',
      title: '10,000 tokens in a Zipf mix',
      note: `${TOKENS} ES256 tokens asked for in proportion to 1/rank; all fit into the sidecar's default cache.`,
      rows: only(rows, 'cpuMicros', 'toNginx', 'toStock', 'perSecond', 'p50', 'p99', 'rss'),
    }
  },
}
