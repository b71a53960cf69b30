/**
 * The scenarios of one account beside another. The quiet one sends requests at a constant rate; the loud one
 * does its worst, in one way after the other.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Figures, Row, Section } from './compare.ts'
import type { HeldConnections } from './held-connections.ts'
import { listening, PREFERRED } from './lab.ts'
import { limitsSetting } from './limits.ts'
import { type LoadReport, linkText, loadWithAnyAnswers, requestText, writeRequests } from './load.ts'
import { sidecarWith, startObjectUpstream } from './peers.ts'
import type { Trust } from './trust.ts'
import { MeasuredTurns } from './turns.ts'

const QUIET_RATE = 200
const QUIET_CONNECTIONS = 20
/** The load client compiles its code meanwhile. */
const SETTLE_SECONDS = 1
/** Of the time that is measured. An odd number has a median. */
const PARTS = 5
const LOUD_RATE = 3000
/** The loud one is ended earlier. */
const MAX_SECONDS = 60
const MORE_TOKENS_THAN_CACHED = 20_000
/** More than an account may have at an upstream. */
const MANY = 300
const GIB = 2 ** 30
/** The upstream writes in small blocks, so that it serves the quiet account in between. */
const SMALL_BLOCK = 64 * 1024

/** What the loud account has. */
interface Loud {
  readonly bench: Bench
  readonly port: number
  /** The line `Authorization` of its token. */
  readonly bearer: string
  readonly mint: Trust['mint']
}

interface Way {
  readonly name: string
  /** The limits that stop it. Without them, it is measured with default settings alone. */
  readonly limits?: string
  readonly settings?: Readonly<Record<string, string>>
  /** Begins. Returns what ends it. */
  readonly begin: (loud: Loud) => () => Promise<void>
}

/** Sends bytes on so many connections, and keeps them open. `then`: what each does from then on. */
function hold({ bench, port }: Loud, count: number, head: string, then: HeldConnections['then']) {
  const options: HeldConnections = { port, count, head, then }
  const running = bench.lab.runYielding('held-connections.ts', options)
  return () => running.stop()
}

/** Sends these requests at a constant rate, one after the other and again from the first. */
function flood({ bench, port }: Loud, texts: readonly string[], rate: number) {
  const requests = writeRequests(bench.lab, texts)
  const options = { port, requests, connections: 100, rate, seconds: MAX_SECONDS }
  const running = bench.lab.runYielding('load-client.ts', options)
  return () => running.stop()
}

const get = (path: string, ...lines: readonly string[]) =>
  [`GET ${path} HTTP/1.1`, 'Host: storage.example', ...lines, '', ''].join('\r\n')

const put = (path: string, length: number, bearer: string) =>
  `PUT ${path} HTTP/1.1\r\nHost: storage.example\r\n${bearer}\r\nContent-Length: ${length}\r\n\r\n`

const HANDSHAKE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
]

const LIMITED_WAYS: readonly Way[] = [
  {
    name: 'requests',
    limits: '{ requestsPerSecond: 100 }',
    begin: (loud) => flood(loud, [get('/a', loud.bearer)], LOUD_RATE),
  },
  {
    name: 'concurrency',
    limits: '{ inFlight: 16 }',
    begin: (loud) => hold(loud, MANY, `${put('/stall', 1, loud.bearer)}x`, 'read'),
  },
  {
    name: 'bytes down',
    limits: '{ downloadBytesPerSecond: 10000000 }',
    begin: (loud) =>
      hold(loud, 20, get(`/object?size=${10 * GIB}&block=${SMALL_BLOCK}`, loud.bearer), 'read'),
  },
  {
    name: 'bytes up',
    limits: '{ uploadBytesPerSecond: 10000000 }',
    begin: (loud) => hold(loud, 20, put('/object', 10 * GIB, loud.bearer), 'write'),
  },
]

export const WORST_WAYS: readonly Way[] = [
  {
    name: 'slow uploads',
    begin: (loud) => hold(loud, MANY, put('/object', GIB, loud.bearer), 'write slowly'),
  },
  {
    name: 'slow reads',
    begin: (loud) =>
      hold(loud, MANY, get(`/object?size=${GIB}&block=${SMALL_BLOCK}`, loud.bearer), 'read slowly'),
  },
  {
    name: 'tunnels',
    settings: { SIDECAR_UPGRADE_ENABLED: 'true' },
    begin: (loud) => hold(loud, MANY, get('/socket', loud.bearer, ...HANDSHAKE), 'write slowly'),
  },
  {
    name: 'queue places',
    begin: (loud) => hold(loud, 5 * MANY, `${put('/stall', 1, loud.bearer)}x`, 'read'),
  },
  {
    name: 'links',
    settings: { SIDECAR_LINKS_ENABLED: 'true', SIDECAR_SCOPES_HOSTS: '*' },
    begin: (loud) => {
      const trust = { ...loud.bench.trust, mint: loud.mint }
      const texts = Array.from({ length: 100 }, () => linkText(trust))
      return flood(loud, texts, LOUD_RATE / 3)
    },
  },
  {
    name: 'public routes',
    settings: { SIDECAR_PUBLIC_ROUTES: '[{ method: GET, path: /public }]' },
    begin: (loud) => flood(loud, [get('/public')], LOUD_RATE / 3),
  },
  {
    name: 'first uses of tokens',
    begin: (loud) => {
      const texts = Array.from({ length: MORE_TOKENS_THAN_CACHED }, () =>
        get('/a', `Authorization: Bearer ${loud.mint()}`),
      )
      return flood(loud, texts, LOUD_RATE / 3)
    },
  },
]

const p99Of = ({ requests, p99 }: LoadReport) => (requests > 0 ? p99 : Number.NaN)

/** With limits, and without. */
export async function limitedNeighbours(bench: Bench): Promise<Section> {
  const measure = await preparation(bench)
  const rows: Row[] = []
  for (const way of LIMITED_WAYS) {
    const setting = limitsSetting(bench.lab, `accounts: { loud: ${way.limits} }`)
    rows.push(await measure({ ...way, name: `${way.name}, limited`, settings: setting }))
    rows.push(await measure({ ...way, name: `${way.name}, no limits` }))
  }
  return { title: 'A quiet account beside a loud one, with limits and without', rows }
}

/** With default settings. */
export async function neighbours(bench: Bench): Promise<Section> {
  const measure = await preparation(bench)
  const rows: Row[] = []
  for (const way of WORST_WAYS) {
    rows.push(await measure(way))
  }
  return { title: 'A quiet account beside the worst of another', rows }
}

async function preparation(bench: Bench) {
  const { lab, trust, quick } = bench
  const { accountId: sub, accessKey: client_id } = trust.addLogin('loud')
  const mint: Trust['mint'] = (claims, header) => trust.mint({ sub, client_id, ...claims }, header)
  const upstreamPort = await startObjectUpstream(lab, PREFERRED)
  const requests = writeRequests(lab, [requestText(trust.mint())])
  const seconds = quick ? 2 : 10
  // The first requests of each kind make V8 compile for some seconds.
  const loudWarmUpMs = quick ? 2000 : 8000
  const turns = new MeasuredTurns(lab.directory)

  return async ({ name, settings = {}, begin }: Way): Promise<Row> => {
    const port = await freePort()
    const running = await sidecarWith({ ...settings, ...turns.env }).start({ ...bench, port, upstreamPort })
    const common = { port, requests, connections: QUIET_CONNECTIONS }
    const quiet = {
      ...common,
      rate: QUIET_RATE,
      settleSeconds: SETTLE_SECONDS,
      seconds,
      parts: PARTS,
      isPreferred: true,
    }
    const measureBeside = async () => {
      await sleep(loudWarmUpMs)
      turns.restart()
      const beside = await loadWithAnyAnswers(lab, quiet)
      return { beside, ...turns.read() }
    }
    try {
      await listening(port)
      await loadWithAnyAnswers(lab, { ...common, rate: 3000, seconds: quick ? 1 : 4 })
      turns.restart()
      const alone = await loadWithAnyAnswers(lab, quiet)
      const { wait: waitAlone } = turns.read()
      const end = begin({ bench, port, bearer: `Authorization: Bearer ${mint()}`, mint })
      const { beside, longest, wait } = await measureBeside().finally(end)
      const served = (beside.requests - beside.refused) / (alone.requests - alone.refused)
      const figures: Figures = {
        'p99 alone, ms': p99Of(alone),
        'p99 ms': p99Of(beside),
        'p99 to alone': p99Of(beside) / p99Of(alone),
        'served to alone': served,
        'wait alone, ms': waitAlone,
        'wait ms': wait,
        'longest turn ms': longest,
      }
      return { name, figures }
    } finally {
      await running.stop()
    }
  }
}
