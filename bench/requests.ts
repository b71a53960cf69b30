/** The scenarios of small requests: CPU time of the proxy, requests a second and latency. */
import { type Bench, compare, type Entrant, type Figures, type Section } from './compare.ts'
import {
  basicText,
  type LoadOptions,
  type LoadReport,
  linkText,
  load,
  loginText,
  oauthLoginText,
  requestText,
  writeRequests,
} from './load.ts'
import {
  assertion,
  envoy,
  haproxy,
  limit,
  nginx,
  PEERS,
  type Peer,
  sidecar,
  sidecarWith,
  stock,
} from './peers.ts'
import { expiredToken, forgedToken, type Trust } from './trust.ts'

const withLinks = sidecarWith({ SIDECAR_LINKS_ENABLED: 'true', SIDECAR_SCOPES_HOSTS: '*' })
const withBasic = sidecarWith({ SIDECAR_BASIC_ENABLED: 'true' })
const CONNECTIONS = 50
/** More tokens than the caches hold, so that each has been evicted when its turn comes again. */
const COLD_TOKENS = 12_000
/** More requests than can be under way at the end of a round. */
const MARGIN = 200
/** Different tokens of each kind, because verifications of one token at the same time are shared. */
const BAD_TOKENS = 2000

const figuresOf =
  ({ requests, seconds, p99 }: LoadReport) =>
  (cpu: number): Figures => ({
    'CPU µs': cpu / requests,
    'requests/s': requests / seconds,
    'p99 ms': p99,
  })

/** One token on kept-alive connections. */
export async function hot(bench: Bench): Promise<Section> {
  const rows = await compare(bench, withOneToken(bench, PEERS))
  return { title: '1 KiB GET, cached token, 50 kept-alive connections', rows }
}

/** The judgement of a restricted token and of a link, beside an unrestricted token. */
export async function scoped(bench: Bench): Promise<Section> {
  const { trust, lab } = bench
  const texts = {
    unrestricted: requestText(trust.mint()),
    restricted: requestText(trust.mint({ scope: 'storage.read:/bucket storage.create:/bucket/in' })),
    link: linkText(trust),
  }
  const entrants = Object.entries(texts).map(([label, text]) =>
    entrant(bench, withLinks, { requests: writeRequests(lab, [text]) }, label),
  )
  return { title: 'A token restricted by a scope, and a link', rows: await compare(bench, entrants) }
}

/** A remembered login by HTTP Basic, beside a cached token. */
export async function basic(bench: Bench): Promise<Section> {
  const { trust, lab } = bench
  const texts = {
    token: requestText(trust.mint()),
    basic: basicText(trust.login.accessKey, trust.login.secret),
  }
  const entrants = Object.entries(texts).map(([label, text]) =>
    entrant(bench, withBasic, { requests: writeRequests(lab, [text]) }, label),
  )
  return { title: 'A remembered login by HTTP Basic', rows: await compare(bench, entrants) }
}

/** One token, and a new connection for each request. */
export async function connections(bench: Bench): Promise<Section> {
  const headers = ['Connection: close']
  const entrants = withOneToken(bench, [sidecar, limit, nginx, envoy, stock], { headers })
  return { title: 'A new connection for each request', rows: await compare(bench, entrants) }
}

/** Each request brings a token that is not cached. */
export async function cold(bench: Bench): Promise<Section> {
  const texts = Array.from({ length: COLD_TOKENS }, () => requestText(bench.trust.mint()))
  const requests = writeRequests(bench.lab, texts)
  const entrants = [sidecar, assertion, haproxy, envoy].map((peer): Entrant => {
    let first = 0
    return {
      peer,
      async load(port, seconds) {
        const result = await load(bench.lab, { port, requests, connections: CONNECTIONS, seconds, first })
        first += result.requests + MARGIN
        return figuresOf(result)
      },
    }
  })
  return { title: 'First use of an ES256 token', rows: await compare(bench, entrants) }
}

const KINDS: Readonly<Record<string, (trust: Trust) => string | undefined>> = {
  missing: () => undefined,
  malformed: () => 'bm8.bm8.bm8',
  'unknown key': ({ mint }) => mint({}, { kid: 'unknown' }),
  forged: forgedToken,
  expired: expiredToken,
}

/** Bad tokens only, by reason. */
export async function refused(bench: Bench): Promise<Section> {
  const entrants = Object.entries(KINDS).flatMap(([kind, create]) => {
    const texts = Array.from({ length: BAD_TOKENS }, () => requestText(create(bench.trust)))
    const requests = writeRequests(bench.lab, texts, 'refusal')
    return [sidecar, envoy].map((peer) => entrant(bench, peer, { requests }, `${peer.name}, ${kind}`))
  })
  return { title: 'Refused tokens', rows: await compare(bench, entrants) }
}

/** Requests at a constant rate, half of what the sidecar can answer here. */
export async function halfLoad(bench: Bench): Promise<Section> {
  const [saturated] = await compare({ ...bench, rounds: 1 }, withOneToken(bench, [sidecar]))
  const rate = Math.round((saturated?.figures['requests/s'] ?? 20_000) / 2)
  const rows = await compare(bench, withOneToken(bench, [sidecar, nginx, envoy], { rate }))
  return { title: `Latency at ${rate} requests a second, half of the sidecar's capacity`, rows }
}

/** Logins with a generated secret. */
export async function logins(bench: Bench): Promise<Section> {
  const requests = writeRequests(bench.lab, [loginText(bench.trust.login)])
  const oauthRequests = writeRequests(bench.lab, [oauthLoginText(bench.trust.login)])
  const withOAuth = sidecarWith({ SIDECAR_OAUTH_ENABLED: 'true' })
  const rows = await compare(bench, [
    entrant(bench, sidecar, { requests }),
    entrant(bench, withOAuth, { requests: oauthRequests }, 'oauth logins'),
  ])
  return { title: 'Logins with a generated secret', rows }
}

function withOneToken(
  bench: Bench,
  peers: readonly Peer[],
  { headers = [], ...options }: { readonly headers?: readonly string[]; readonly rate?: number } = {},
): Entrant[] {
  const requests = writeRequests(bench.lab, [requestText(bench.trust.mint(), ...headers)])
  return peers.map((peer) => entrant(bench, peer, { requests, ...options }))
}

export function entrant(
  { lab }: Bench,
  peer: Peer,
  options: Pick<LoadOptions, 'requests' | 'rate'>,
  label = peer.name,
): Entrant {
  const common = { ...options, connections: CONNECTIONS }
  return {
    peer,
    label,
    load: async (port, seconds) => figuresOf(await load(lab, { ...common, port, seconds })),
  }
}
