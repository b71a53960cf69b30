/**
 * The traffic of the soak run: what clients of every temper ask for, each kind with what it must bring.
 *
 * @module
 */
import { createHash } from 'node:crypto'
import type { Agent } from 'node:http'
import { connect } from 'node:net'
import { WebSocket } from 'ws'
import { readAnswers } from './client-answers.ts'
import type { Shelf } from './fuzz-requests.ts'
import type { Random } from './random.ts'
import { objectDigest } from './soak-object.ts'
import { type Expectation, type Outcome, outcomeOf } from './soak-outcomes.ts'
import { transfer, type Wanted } from './soak-transfer.ts'

/** What traffic is made of. */
export interface TrafficOptions {
  readonly port: number
  readonly agent: Agent
  readonly shelf: Shelf
}

/** Makes one request of a kind and says what became of it. Never rejects. */
type Kind = (options: TrafficOptions, random: Random) => Promise<Outcome>

const MEGABYTE = 1024 * 1024

function bearer({ shelf }: TrafficOptions, random: Random): { authorization: string } {
  return { authorization: `Bearer ${random.pick(shelf.good)}` }
}

async function ask(
  options: TrafficOptions,
  wanted: Omit<Wanted, 'port' | 'agent'>,
  expected: Expectation,
): Promise<Outcome> {
  return outcomeOf(await transfer({ ...options, ...wanted }), expected)
}

/** Gets an object, or a range of it. */
async function get(
  options: TrafficOptions,
  random: Random,
  size: number,
  { range = false, ...how }: { range?: boolean; pauseMs?: number; abortMs?: number } = {},
): Promise<Outcome> {
  const key = random.int(1, 5)
  const from = range ? random.int(0, size - 1) : 0
  const to = range ? random.int(from, size - 1) : size - 1
  const headers = { ...bearer(options, random), ...(range ? { range: `bytes=${from}-${to}` } : {}) }
  return ask(
    options,
    { method: 'GET', path: `/o/${key}/${size}`, headers, ...how },
    { answer: range ? '206' : '200', forwarded: true, sha256: objectDigest(key, from, to + 1 - from) },
  )
}

/** Puts an object. */
async function put(
  options: TrafficOptions,
  random: Random,
  bytes: number,
  { method = 'PUT', ...how }: { method?: string; pauseMs?: number; abortMs?: number } = {},
): Promise<Outcome> {
  const key = random.int(1, 5)
  const framing: Record<string, string> = random.chance(0.5)
    ? { 'content-length': String(bytes) }
    : { 'transfer-encoding': 'chunked' }
  return ask(
    options,
    {
      method,
      path: `/o/${key}`,
      headers: { ...bearer(options, random), ...framing },
      body: { key, bytes },
      ...how,
    },
    { answer: '201', forwarded: true, sent: objectDigest(key, 0, bytes), sendsMuch: bytes > 100_000 },
  )
}

async function logIn(options: TrafficOptions, random: Random, right: boolean): Promise<Outcome> {
  const login = random.pick(options.shelf.logins)
  const body = JSON.stringify(right ? login : { ...login, secret: 'wrong' })
  const headers = {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
  }
  return ask(
    options,
    { method: 'POST', path: '/v2/auth/token/', headers, body },
    { answer: right ? '200' : '403 Authentication failed', forwarded: false },
  )
}

/** Sends several requests at once on one connection: their answers must come in order. */
function pipeline({ port, ...options }: TrafficOptions, random: Random): Promise<Outcome> {
  const sizes = Array.from({ length: random.int(2, 20) }, () => random.int(1, 3000))
  const { authorization } = bearer({ port, ...options }, random)
  const head = `Host: s\r\nAuthorization: ${authorization}\r\n\r\n`
  return new Promise((resolve) => {
    let received = ''
    const socket = connect({ port, host: '127.0.0.1' })
    const look = (ended: 'end' | undefined) => {
      const methods = sizes.map(() => 'GET')
      const answers = readAnswers(received, methods, ended)
      if (typeof answers === 'string') return finish({ word: 'garbled', problem: answers })
      if (answers.length < sizes.length && ended === undefined) return undefined
      const mixed = answers.some(
        ({ status, body, whole }, at) =>
          whole && status === 200 && digest(body) !== objectDigest(1, 0, sizes[at] as number),
      )
      if (mixed) return finish({ word: 'mixed', problem: 'an answer out of order, or of other bytes' })
      return finish({ word: answers.length === sizes.length ? 'all answered' : 'cut' })
    }
    const finish = (outcome: Outcome) => {
      clearTimeout(patience)
      socket.destroy()
      resolve(outcome)
    }
    const patience = setTimeout(() => finish({ word: 'hung', problem: 'answers are missing' }), 60_000)
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      received += text
      look(undefined)
    })
    socket.on('end', () => look('end'))
    socket.on('error', () => look('end'))
    socket.write(sizes.map((size) => `GET /o/1/${size} HTTP/1.1\r\n${head}`).join(''), 'latin1')
  })
}

function digest(latin1: string): string {
  return createHash('sha256').update(Buffer.from(latin1, 'latin1')).digest('hex')
}

/** Opens a tunnel, has messages echoed, and leaves in one way or another. */
function tunnel(options: TrafficOptions, random: Random): Promise<Outcome> {
  const messages = Array.from({ length: random.int(1, 10) }, () => random.text(random.pick([1, 200, 70_000])))
  const leaves = random.pick(['close', 'terminate'] as const)
  return new Promise((resolve) => {
    const socket = new WebSocket(`ws://127.0.0.1:${options.port}/ws`, { headers: bearer(options, random) })
    let echoed = 0
    const finish = (outcome: Outcome) => {
      clearTimeout(patience)
      socket.terminate()
      resolve(outcome)
    }
    const patience = setTimeout(() => finish({ word: 'hung', problem: 'no echo and no end' }), 60_000)
    socket.on('open', () => socket.send(messages[0] as string))
    socket.on('message', (data) => {
      if (String(data) !== messages[echoed]) return finish({ word: 'garbled', problem: 'another echo' })
      echoed++
      if (echoed < messages.length) return socket.send(messages[echoed] as string)
      socket[leaves]()
      return finish({ word: 'echoed' })
    })
    socket.on('unexpected-response', (req, res) => {
      const word = String(res.statusCode)
      req.destroy()
      const fair = word === '503' || word === '500'
      finish(fair ? { word } : { word, problem: `a handshake was answered ${word}` })
    })
    socket.on('close', () => finish({ word: 'cut' }))
    socket.on('error', () => {}) // `close` follows
  })
}

/** Every kind of traffic, each as frequent as its weight. */
export const KINDS: readonly (readonly [weight: number, kind: readonly [name: string, run: Kind]])[] = [
  [20, ['get', (options, random) => get(options, random, random.int(1, 20_000))]],
  [3, ['get an empty object', (options, random) => get(options, random, 0)]],
  [
    5,
    [
      'head',
      (options, random) =>
        ask(
          options,
          { method: 'HEAD', path: '/o/1/5000', headers: bearer(options, random) },
          { answer: '200', forwarded: true, head: true },
        ),
    ],
  ],
  [10, ['put', (options, random) => put(options, random, random.int(0, 20_000))]],
  [4, ['post', (options, random) => put(options, random, random.int(0, 2000), { method: 'POST' })]],
  [
    4,
    [
      'delete',
      (options, random) =>
        ask(
          options,
          { method: 'DELETE', path: '/o/1', headers: bearer(options, random) },
          { answer: '204', forwarded: true },
        ),
    ],
  ],
  [3, ['get a large object', (options, random) => get(options, random, random.int(1, 12) * MEGABYTE)]],
  [3, ['put a large object', (options, random) => put(options, random, random.int(1, 12) * MEGABYTE)]],
  [6, ['get a range', (options, random) => get(options, random, MEGABYTE, { range: true })]],
  [5, ['log in', (options, random) => logIn(options, random, true)]],
  [3, ['log in wrongly', (options, random) => logIn(options, random, false)]],
  [
    5,
    [
      'check a token',
      (options, random) =>
        ask(
          options,
          { method: 'GET', path: '/v2/auth/token', headers: bearer(options, random) },
          { answer: '200', forwarded: false },
        ),
    ],
  ],
  [
    5,
    [
      'no token',
      (options) =>
        ask(
          options,
          { method: 'GET', path: '/o/1/100', headers: {} },
          { answer: '400 InvalidToken', forwarded: false },
        ),
    ],
  ],
  [
    3,
    [
      'an expired token',
      (options) =>
        ask(
          options,
          { method: 'GET', path: '/o/1/100', headers: { authorization: `Bearer ${options.shelf.bad[0]}` } },
          { answer: '400 ExpiredToken', forwarded: false },
        ),
    ],
  ],
  [2, ['read slowly', (options, random) => get(options, random, 2 * MEGABYTE, { pauseMs: 15 })]],
  [2, ['write slowly', (options, random) => put(options, random, 60_000, { pauseMs: 30 })]],
  [
    4,
    [
      'leave while reading',
      (options, random) => get(options, random, 8 * MEGABYTE, { abortMs: random.int(0, 40) }),
    ],
  ],
  [
    4,
    [
      'leave while writing',
      (options, random) => put(options, random, 8 * MEGABYTE, { abortMs: random.int(0, 40) }),
    ],
  ],
  [4, ['pipeline', pipeline]],
  [4, ['tunnel', tunnel]],
]
