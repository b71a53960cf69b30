/**
 * The soak run: mixed traffic through the built program while its upstream resets, truncates,
 * sends garbage, is silent or restarts.
 * At the end nothing may be left in flight, and descriptors and heap must be back at their start.
 *
 *     npm run soak -- [SECONDS] [SEED]
 *     npm run soak -- --reloads [SECONDS]      another run: `reloads.ts`
 *
 * Needs Node only. The last line is `0 violations`, with exit code 0, or `N violations`, with exit code 1.
 */
import { randomInt } from 'node:crypto'
import {
  Agent,
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { pipeline, Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { createRandom, type Random } from './random.ts'
import { createCampaignTrust, type Identity, startSidecar } from './sidecar-process.ts'

const CLIENTS = 24
const WARM_UP_SECONDS = 6
/** Longer than an idle connection to the upstream is kept. */
const QUIET_MS = 6000
/** Longer than every timeout of the sidecar and every pause of a client. */
const PATIENCE_MS = 60_000
/** Code that V8 compiles meanwhile, and counters of new statuses: measured 1 to 3 MB. */
const MAX_HEAP_GROWTH = 6e6
const MEGABYTE = 2 ** 20
const MODES = ['garbage', 'truncated', 'reset', 'silent', 'unread', 'restart'] as const

if (process.argv[2] === '--reloads') {
  await import('./reloads.ts') // ends the process
}
const [seconds = 60, seed = randomInt(2 ** 32)] = process.argv.slice(2).map(Number)
if (!(seconds > 0) || !Number.isInteger(seed)) {
  throw new Error('usage: npm run soak -- [SECONDS] [SEED]')
}
console.log(`seed ${seed}`)

/** Objects are prefixes of this, repeated; no buffer size divides its length. */
const BLOCK = Buffer.from(createRandom(1, 1).text(65_521))

function isObject(chunk: Buffer, offset: number): boolean {
  let at = 0
  while (at < chunk.length) {
    const start = (offset + at) % BLOCK.length
    const length = Math.min(chunk.length - at, BLOCK.length - start)
    if (BLOCK.compare(chunk, at, at + length, start, start + length) !== 0) {
      return false
    }
    at += length
  }
  return true
}

let mode: (typeof MODES)[number] | 'healthy' = 'healthy'
let turn = 0
const sockets = new Set<Socket>()
const upstream = createServer({ keepAliveTimeout: 3000, requestTimeout: 0 }, (req, res) => {
  const { socket } = req
  for (const emitter of [req, res]) {
    emitter.on('error', () => {})
  }
  if (mode === 'healthy') {
    serve(req, res)
    return
  }
  turn++
  if (turn % 2 === 1) {
    serve(req, res)
  } else if (mode === 'garbage') {
    socket.end('SSH-2.0-x\r\n\0\xff\r\n\r\n', 'latin1')
  } else if (mode === 'truncated') {
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot all'.slice(0, (turn * 7) % 60))
  } else if (mode === 'silent') {
    req.resume()
  } else if (mode === 'unread') {
    setTimeout(() => res.destroyed || serve(req, res), 1500)
  } else {
    if (turn % 4 < 2) {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot all')
    }
    setTimeout(() => socket.resetAndDestroy(), 5)
  }
})
upstream.on('connection', (socket) => {
  sockets.add(socket)
  socket.on('close', () => sockets.delete(socket))
})
const listen = (port: number) => new Promise<void>((resolve) => upstream.listen(port, '127.0.0.1', resolve))
await listen(0)
const upstreamPort = (upstream.address() as AddressInfo).port

/** Answers GET with an object of the size in the path, and PUT with the number of correct bytes. */
function serve(req: IncomingMessage, res: ServerResponse): void {
  if (req.headers['x-sent-by'] !== req.headers['x-authenticated-token-id']) {
    res.writeHead(418).end()
    return
  }
  if (req.method === 'PUT') {
    let bytes = 0
    req.on('data', (chunk: Buffer) => {
      bytes = isObject(chunk, bytes) ? bytes + chunk.length : Number.NaN
    })
    req.on('end', () => res.writeHead(201, { 'Content-Length': String(bytes).length }).end(String(bytes)))
    return
  }
  req.resume()
  const size = Number(req.url?.split('/')[2])
  res.writeHead(200, { 'Content-Length': size })
  pipeline(Readable.from(blocks(size)), res, () => {})
}

function* blocks(size: number): Generator<Buffer> {
  for (let left = size; left > 0; left -= BLOCK.length) {
    yield BLOCK.subarray(0, left)
  }
}

async function mistreat(random: Random): Promise<void> {
  mode = random.pick(MODES)
  if (mode === 'restart') {
    upstream.close()
    for (const socket of sockets) {
      socket.resetAndDestroy()
    }
    await sleep(random.int(0, 1500))
    await listen(upstreamPort)
  } else {
    await sleep(random.int(100, 1500))
  }
  mode = 'healthy'
  await sleep(random.int(200, 3000))
}

const FLAGS =
  '--timeouts-idle-seconds 3 --timeouts-upstream-response-seconds 3 --limits-login-failures-count 1000000 ' +
  '--log-access off --cache-max-tokens 500' // each link takes an entry
const trust = await createCampaignTrust('/o')
const COLLECT = 'import{getHeapSnapshot}from"node:v8";process.on("SIGUSR2",()=>getHeapSnapshot().destroy())'
const sidecar = await startSidecar(trust, upstreamPort, FLAGS.split(' '), {
  nodeFlags: [`--import=data:text/javascript,${encodeURIComponent(COLLECT)}`],
})
const problems = new Map<string, number>()
const tally = new Map<string, number>()
const add = (counts: Map<string, number>, key: string) => counts.set(key, (counts.get(key) ?? 0) + 1)

/**
 * What one request sends,
 * how the client behaves, and the status that it must get while the upstream is healthy.
 */
interface RequestOptions {
  readonly method: string
  readonly path: string
  readonly token?: string | undefined
  /** The token id that the upstream must receive. */
  readonly tokenId?: string
  /** Receives the body of an own response. */
  readonly read?: (text: string) => void
  readonly body?: string
  /** Bytes of the object that is sent, or received. */
  readonly size?: number
  /** Milliseconds between two reads or writes. */
  readonly pauseMs?: number
  /** The client leaves after so many milliseconds. */
  readonly abortMs?: number
  readonly status: number
}

function headersOf({ method, token, tokenId, body }: RequestOptions, upload: number) {
  const headers: Record<string, string | number> = {}
  if (token !== undefined) {
    headers['authorization'] = `Bearer ${token}`
  }
  if (tokenId !== undefined) {
    headers['x-sent-by'] = encodeURIComponent(tokenId)
  }
  if (body !== undefined) {
    headers['content-type'] = 'application/json'
  }
  if (method !== 'GET') {
    headers['content-length'] = upload + Buffer.byteLength(body ?? '')
  }
  return headers
}

/** Makes a request. Resolves with its outcome: the status, `left`, `cut`, or a violation. */
function ask(agent: Agent, options: RequestOptions): Promise<string> {
  const { method, path, body, read, size = 0, pauseMs = 0, abortMs } = options
  const upload = method === 'PUT' ? size : 0
  const headers = headersOf(options, upload)
  return new Promise((resolve) => {
    let responded = false
    const req = request({ host: '127.0.0.1', port: sidecar.port, agent, method, path, headers })
    const settle = (what: string) => {
      clearTimeout(patience)
      clearTimeout(abort)
      resolve(what)
      if (!/^\d+$/.test(what) || !req.writableFinished) {
        req.destroy()
      }
    }
    const patience = setTimeout(settle, PATIENCE_MS, 'violation: no response and no end')
    const abort = abortMs === undefined ? undefined : setTimeout(settle, abortMs, 'left')
    req.on('error', ({ message }) => {
      const mayBreak = responded || upload > 100_000
      settle(mayBreak ? 'cut' : `violation: the connection broke before a response: ${message}`)
    })
    req.on('response', async (res) => {
      responded = true
      const received = await readResponse(res, pauseMs)
      const outcome = outcomeOf(options, received)
      if (/^\d+$/.test(outcome)) {
        read?.(received.text)
      }
      settle(outcome)
    })
    sendBody(req, { upload, body, pauseMs, isOver: () => responded || req.destroyed })
  })
}

interface Received {
  readonly status: number
  readonly isComplete: boolean
  readonly bytes: number
  /** The first 4 KiB or so. */
  readonly text: string
  /** Whether the bytes are those of an object. */
  readonly isObject: boolean
}

/** @param pauseMs - between two reads */
function readResponse(res: IncomingMessage, pauseMs: number): Promise<Received> {
  let bytes = 0
  let text = ''
  let isWholeObject = true
  res.on('data', (chunk: Buffer) => {
    isWholeObject &&= isObject(chunk, bytes)
    bytes += chunk.length
    if (bytes < 4096) {
      text += chunk
    }
    if (pauseMs > 0) {
      res.pause()
      setTimeout(() => res.resume(), pauseMs)
    }
  })
  res.on('error', () => {})
  return new Promise((resolve) => {
    res.on('close', () => {
      const status = res.statusCode ?? 0
      resolve({ status, isComplete: res.complete, bytes, text, isObject: isWholeObject })
    })
  })
}

const isForwarded = ({ path, status }: RequestOptions) => path.startsWith('/o/') && status < 400

/** The status, `cut`, or a violation. */
function outcomeOf(options: RequestOptions, received: Received): string {
  const { method, status: expected, size = 0 } = options
  const { status, bytes, text } = received
  const forwarded = isForwarded(options)
  if (!received.isComplete) {
    return forwarded ? 'cut' : 'violation: an own response was truncated'
  }
  const isFault = forwarded && (status === 500 || status === 503)
  if (status !== expected && !isFault) {
    return `violation: ${status} instead of ${expected}`
  }
  const isOwn = !forwarded || isFault
  const isSizeOfUpload = text === String(size)
  const isWholeObject = bytes === size && received.isObject
  const isWhole = method === 'PUT' ? isSizeOfUpload : isWholeObject
  const isRight = isOwn ? OWN_BODY.test(text) : isWhole
  return isRight ? String(status) : `violation: ${status} with a wrong body`
}

const OWN_BODY = /^\{"(?:code|token|expirationSec|url)"/

interface SentBody {
  /** The bytes of the object, which are sent before `body`. */
  readonly upload: number
  readonly body: string | undefined
  /** Between two writes. */
  readonly pauseMs: number
  readonly isOver: () => boolean
}

function sendBody(req: ClientRequest, sent: SentBody): void {
  const { upload, body, pauseMs, isOver } = sent
  const maxPiece = pauseMs > 0 ? 1000 : BLOCK.length
  const sendFrom = (at: number): void => {
    if (isOver()) {
      return
    }
    if (at >= upload) {
      req.end(body)
      return
    }
    const start = at % BLOCK.length
    const piece = BLOCK.subarray(start, start + Math.min(upload - at, maxPiece))
    const hasRoom = req.write(piece)
    const next = () => sendFrom(at + piece.length)
    if (pauseMs > 0) {
      setTimeout(next, pauseMs)
    } else if (hasRoom) {
      next()
    } else {
      req.once('drain', next)
    }
  }
  sendFrom(0)
}

type Kind = (agent: Agent, random: Random, caller: readonly [token: string, Identity]) => Promise<string>
type Manner = (random: Random) => Pick<RequestOptions, 'pauseMs' | 'abortMs'>
const mayDo = (method: 'GET' | 'PUT', { scope = '' }: Identity) =>
  scope === '' || scope.startsWith(method === 'GET' ? 'storage.read' : 'storage.modify')
const object =
  (method: 'GET' | 'PUT', most: number, how: Manner = () => ({})): Kind =>
  (agent, random, [token, identity]) => {
    const size = random.int(1, most)
    const statusIfAllowed = method === 'PUT' ? 201 : 200
    const status = mayDo(method, identity) ? statusIfAllowed : 403
    const { tokenId } = identity
    return ask(agent, { method, path: `/o/${size}`, size, token, tokenId, status, ...how(random) })
  }
const link: Kind = async (agent, random, [token, identity]) => {
  const size = random.int(1, 20_000)
  let made = ''
  const outcome = await ask(agent, {
    method: 'POST',
    path: '/v2/auth/links',
    token,
    body: JSON.stringify({ method: 'GET', target: `/o/${size}` }),
    status: mayDo('GET', identity) ? 200 : 403,
    read: (text) => {
      made = text
    },
  })
  if (outcome !== '200') {
    return outcome
  }
  const { url, linkId } = JSON.parse(made)
  return ask(agent, { method: 'GET', path: url, size, tokenId: linkId, status: 200 })
}
const login =
  (right: boolean): Kind =>
  (agent, random) => {
    const known = random.pick(trust.logins)
    const body = JSON.stringify(right ? known : { ...known, secret: 'wrong' })
    return ask(agent, { method: 'POST', path: '/v2/auth/token', body, status: right ? 200 : 403 })
  }
const CHECK = { method: 'GET', path: '/v2/auth/token', status: 200 } as const
const REFUSED = { method: 'GET', path: '/o/1', status: 400 } as const
const abort = (random: Random) => ({ abortMs: random.int(0, 40) })
const KINDS: Readonly<Record<string, readonly [weight: number, kind: Kind]>> = {
  get: [20, object('GET', 20_000)],
  put: [10, object('PUT', 20_000)],
  'get a large object': [4, object('GET', 12 * MEGABYTE)],
  'put a large object': [4, object('PUT', 12 * MEGABYTE)],
  'read slowly': [2, object('GET', 2 * MEGABYTE, () => ({ pauseMs: 15 }))],
  'write slowly': [2, object('PUT', 60_000, () => ({ pauseMs: 30 }))],
  'leave while reading': [4, object('GET', 8 * MEGABYTE, abort)],
  'leave while writing': [4, object('PUT', 8 * MEGABYTE, abort)],
  login: [5, login(true)],
  'wrong login': [3, login(false)],
  'make and use a link': [4, link],
  'check a token': [5, (agent, _random, [token]) => ask(agent, { ...CHECK, token })],
  'no token': [5, (agent) => ask(agent, REFUSED)],
  'bad token': [3, (agent, random) => ask(agent, { ...REFUSED, token: random.pick(trust.bad) })],
}

async function traffic(seconds: number, stream: number): Promise<void> {
  const agent = new Agent({ keepAlive: true })
  const until = performance.now() + seconds * 1000
  const callers = [...trust.good]
  const kinds = Object.entries(KINDS).map(([name, [weight, kind]]) => [weight, { name, kind }] as const)
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      const random = createRandom(seed, stream + client)
      while (performance.now() < until && sidecar.ended === undefined) {
        const { name, kind } = random.weighted(kinds)
        const outcome = await kind(agent, random, random.pick(callers))
        add(tally, `${name}: ${outcome}`)
        if (outcome.startsWith('violation')) {
          add(problems, `${name}: ${outcome}`)
        }
      }
    }),
  )
  agent.destroy()
}

/** What the sidecar holds after a pause: the least of a few looks, because a look is work itself. */
async function atRest(): Promise<Readonly<Record<string, number>>> {
  await sleep(QUIET_MS)
  const least: Record<string, number> = {}
  for (let look = 0; look < 4; look++) {
    process.kill(sidecar.pid, 'SIGUSR2')
    await sleep(500)
    const metrics = await sidecar.metrics()
    const gauges = [...metrics].filter(([name]) =>
      /^auth_sidecar_(?:\w*in_flight|client_connections|upstream_queue)(?:\{|$)/.test(name),
    )
    const heap = metrics.get('nodejs_heap_size_used_bytes') ?? Number.NaN
    const all = { ...Object.fromEntries(gauges), descriptors: sidecar.descriptors(), heap }
    for (const [name, value] of Object.entries(all)) {
      least[name] = Math.min(least[name] ?? value, value)
    }
  }
  return least
}

await traffic(WARM_UP_SECONDS, 1)
const before = await atRest()
const faults = createRandom(seed, 0)
let over = false
const mistreating = (async () => {
  while (!over) {
    await mistreat(faults)
  }
})()
await traffic(seconds, 1000)
over = true
await mistreating
const agent = new Agent()
const [caller] = trust.good
const last = sidecar.ended ?? (caller && (await object('GET', 1000)(agent, faults, caller)))
if (last !== '200') {
  add(problems, `the sidecar does not serve after the last fault: ${last}`)
}
if (sidecar.ended === undefined) {
  const after = await atRest()
  for (const [name, value] of Object.entries(after)) {
    const growth = { heap: MAX_HEAP_GROWTH, descriptors: 0 }[name]
    const bound = growth === undefined ? 0 : (before[name] ?? 0) + growth
    console.log(`${name}: ${before[name]} before, ${value} after`)
    if (!(value <= bound)) {
      add(problems, `${name} is ${value}, with ${bound} allowed`)
    }
  }
}
for (const line of sidecar.complaints) {
  add(problems, `logged: ${line}`)
}
await sidecar.stop()
trust.remove()
for (const [what, count] of [...tally].sort()) {
  console.log(`${what}: ${count}`)
}
for (const [what, count] of problems) {
  console.log(`violation, ${count} times: ${what}`)
}
console.log(`${problems.size} violations`)
process.exit(problems.size === 0 ? 0 : 1)
