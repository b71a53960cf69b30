/**
 * The scenarios of one account beside another. The quiet one sends requests at a constant rate; the loud one
 * does its worst, in one way after the other.
 */
import { connect, type Socket } from 'node:net'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Figures, Row, Section } from './compare.ts'
import { listening, PREFERRED } from './lab.ts'
import { limitsSetting } from './limits.ts'
import { type LoadReport, linkText, loadWithAnyAnswers, requestText, writeRequests } from './load.ts'
import { sidecarWith, startObjectUpstream } from './peers.ts'
import type { Trust } from './trust.ts'
import { MeasuredTurns } from './turns.ts'

const QUIET_RATE = 200
const QUIET_CONNECTIONS = 20
/** The loud account begins so much earlier than the quiet one is measured, at least. */
const SETTLE_SECONDS = 1
const LOUD_RATE = 3000
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
  readonly seconds: number
}

interface Way {
  readonly name: string
  /** The limits that stop it. Without them, it is measured with default settings alone. */
  readonly limits?: string
  readonly settings?: Readonly<Record<string, string>>
  /** Begins. Returns what ends it. */
  readonly begin: (loud: Loud) => () => void
}

/** Sends bytes on so many connections, and keeps them open. `act`: what each does from then on. */
function hold({ port }: Loud, count: number, head: string, act: (socket: Socket) => void = () => {}) {
  const sockets = Array.from({ length: count }, () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => socket.destroy())
    socket.write(head)
    act(socket)
    return socket
  })
  return () => {
    for (const socket of sockets) {
      socket.destroy()
    }
  }
}

/** Sends these requests at a constant rate for as long as the quiet account is measured. */
function flood({ bench, port, seconds }: Loud, texts: readonly string[], rate: number) {
  const requests = writeRequests(bench.lab, texts)
  const options = { port, requests, connections: 100, rate, seconds: seconds + 2 * SETTLE_SECONDS }
  const flooding = loadWithAnyAnswers(bench.lab, options)
  flooding.catch((error: unknown) => bench.skip(`flood: ${error}`))
  return () => {}
}

const get = (path: string, ...lines: readonly string[]) =>
  [`GET ${path} HTTP/1.1`, 'Host: storage.example', ...lines, '', ''].join('\r\n')

const put = (path: string, length: number, bearer: string) =>
  `PUT ${path} HTTP/1.1\r\nHost: storage.example\r\n${bearer}\r\nContent-Length: ${length}\r\n\r\n`

function read(socket: Socket): void {
  socket.resume()
}

/** Reads 1 KB a second. */
function readSlowly(socket: Socket): void {
  socket.on('readable', () => {})
  const reading = setInterval(() => socket.read(Math.min(1024, socket.readableLength)), 1000)
  socket.on('close', () => clearInterval(reading))
}

function write(socket: Socket): void {
  const block = Buffer.alloc(1 << 16, 'x')
  const writeOn = () => {
    while (!socket.destroyed && socket.write(block)) {}
  }
  socket.on('drain', writeOn)
  writeOn()
}

function writeSlowly(socket: Socket): void {
  const writing = setInterval(() => socket.write('x'), 1000)
  socket.on('close', () => clearInterval(writing))
}

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
    begin: (loud) => hold(loud, MANY, `${put('/stall', 1, loud.bearer)}x`, read),
  },
  {
    name: 'bytes down',
    limits: '{ downloadBytesPerSecond: 10000000 }',
    begin: (loud) => hold(loud, 20, get(`/object?size=${10 * GIB}`, loud.bearer), read),
  },
  {
    name: 'bytes up',
    limits: '{ uploadBytesPerSecond: 10000000 }',
    begin: (loud) => hold(loud, 20, put('/object', 10 * GIB, loud.bearer), write),
  },
]

export const WORST_WAYS: readonly Way[] = [
  { name: 'slow uploads', begin: (loud) => hold(loud, MANY, put('/object', GIB, loud.bearer), writeSlowly) },
  {
    name: 'slow reads',
    begin: (loud) =>
      hold(loud, MANY, get(`/object?size=${GIB}&block=${SMALL_BLOCK}`, loud.bearer), readSlowly),
  },
  {
    name: 'tunnels',
    settings: { SIDECAR_UPGRADE_ENABLED: 'true' },
    begin: (loud) => hold(loud, MANY, get('/socket', loud.bearer, ...HANDSHAKE), writeSlowly),
  },
  {
    name: 'queue places',
    begin: (loud) => hold(loud, 5 * MANY, `${put('/stall', 1, loud.bearer)}x`, read),
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
      const count = (LOUD_RATE / 3) * (loud.seconds + 2 * SETTLE_SECONDS)
      const texts = Array.from({ length: count }, () => get('/a', `Authorization: Bearer ${loud.mint()}`))
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
  const seconds = quick ? 2 : 8
  const turns = new MeasuredTurns(lab.directory)

  return async ({ name, settings = {}, begin }: Way): Promise<Row> => {
    const port = await freePort()
    const running = await sidecarWith({ ...settings, ...turns.env }).start({ ...bench, port, upstreamPort })
    const common = { port, requests, connections: QUIET_CONNECTIONS }
    const quiet = { ...common, rate: QUIET_RATE, settleSeconds: SETTLE_SECONDS, seconds, isPreferred: true }
    try {
      await listening(port)
      await loadWithAnyAnswers(lab, { ...common, rate: 3000, seconds: quick ? 1 : 4 })
      turns.restart()
      const alone = await loadWithAnyAnswers(lab, quiet)
      const { wait: waitAlone } = turns.read()
      turns.restart()
      const end = begin({ bench, port, bearer: `Authorization: Bearer ${mint()}`, mint, seconds })
      const beside = await loadWithAnyAnswers(lab, quiet)
      const { longest, wait } = turns.read()
      end()
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
