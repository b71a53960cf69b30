/**
 * Requests that are refused, by reason: what a flood of them costs, beside a forwarded request in the same run.
 *
 * @module
 */
import type { Bench, Scenario } from '../bench.ts'
import { compare, type Entrant } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import type { Trust } from '../lab/trust.ts'
import { load } from '../load/load.ts'
import { haproxyJwt } from '../peers/haproxy.ts'
import { fastify } from '../peers/node-peers.ts'
import type { Peer } from '../peers/peer.ts'
import { sidecar } from '../peers/sidecar.ts'
import { halved, only } from '../report/figures.ts'
import { entrantsOf } from './hot-token.ts'

/** Bad tokens, the cheap reasons first; forged and expired can only be told after the signature was checked. */
const KINDS: readonly (readonly [string, (trust: Trust) => string | undefined])[] = [
  ['missing', () => undefined],
  ['malformed', () => 'bm8.bm8.bm8'],
  ['unknown key', ({ mint }) => mint('ES256', { kid: 'nobody' })],
  ['forged', ({ mint }) => withSignatureOf(mint('ES256'), mint('ES256'))],
  ['expired', ({ mint }) => mint('ES256', { expiresIn: -60 })],
]

/**
 * Different ones, as verifications of one token that comes on several connections at a time are shared, and a connection
 * that repeats a token is told again what it was told.
 */
const TOKENS = 2000

/** What a client that goes on with a bad token costs: kinds of which each connection sends one token all the time. */
const REPEATED = ['forged', 'expired']

export const refusedTokens: Scenario = {
  name: 'refused',
  async run(bench) {
    const [forwarded] = entrantsOf(bench, [sidecar()])
    const ours = KINDS.map(([kind]) => refusing(bench, sidecar(), kind))
    const repeated = REPEATED.map((kind) => refusing(bench, sidecar(), kind, 1))
    const others = [haproxyJwt('ES256'), fastify()].map((peer) => refusing(bench, peer, 'forged'))
    const rows = await compare(
      bench,
      [
        ...(forwarded === undefined ? [] : [{ ...forwarded, label: 'sidecar, forwarded' }]),
        ...ours,
        ...repeated,
        ...others,
      ],
      { seconds: halved(bench.seconds) },
    )
    return {
      name: 'refused',
      title: 'Refused tokens',
      note:
        `50 connections that send bad tokens only, ${TOKENS} different ones of each kind. That a token is forged or ` +
        'expired is known after its signature was verified; refused tokens are not remembered, but for the one that ' +
        'came last on a connection: "repeated" is one token on all of them.',
      rows: only(rows, 'cpuMicros', 'perSecond', 'p50', 'p99'),
    }
  },
}

function refusing({ lab, trust }: Bench, peer: Peer, kind: string, tokens = TOKENS): Entrant {
  const make = KINDS.find(([name]) => name === kind)?.[1]
  const texts = Array.from({ length: tokens }, () => requestText({ token: make?.(trust) }))
  const requests = writeRequests(lab, `refused-${kind}-${tokens}`, texts, { expect: 'refused' })
  const label = `${peer.name}, ${kind}${tokens === 1 ? ', repeated' : ''}`
  return { peer, label, load: (port, seconds) => load(lab, { port, requests, connections: 50, seconds }) }
}

function withSignatureOf(token: string, other: string): string {
  return token.slice(0, token.lastIndexOf('.')) + other.slice(other.lastIndexOf('.'))
}
