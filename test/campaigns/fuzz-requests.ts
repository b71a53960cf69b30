/**
 * What the clients of the fuzz run send.
 *
 * In: the seed, the number of a connection, and the tokens there are. Out: everything that is to happen on this
 * connection: its bytes, where they are cut into writes, how it ends, and how the upstream answers. The same numbers
 * give the same script.
 *
 * @module
 */
import type { KnownLogin } from './expected-logins.ts'
import { type Reply, randomReply } from './fuzz-replies.ts'
import { mutate } from './mutate.ts'
import { createRandom, type Random } from './random.ts'
import { chunksOf, type Draft, trap, twist } from './request-twists.ts'

/** Everything that happens on one connection. */
export interface Script {
  /** Names the connection: stands in its targets and in the answers to them. */
  readonly name: string
  /** Latin-1. */
  readonly bytes: string
  /** Where the bytes are cut into writes, ascending. */
  readonly cuts: readonly number[]
  /** How the client leaves once it has all it can expect; `abort`: at once, in the middle of everything. */
  readonly leave: 'close' | 'half-close' | 'abort'
  /** The answers to its requests, by their position. */
  readonly replies: readonly Reply[]
}

/** What there is to send. */
export interface Shelf {
  readonly good: readonly string[]
  /** Expired, forged, garbled, of accounts that are gone. */
  readonly bad: readonly string[]
  readonly logins: readonly KnownLogin[]
}

/** Makes the script of a connection. */
export function makeScript(seed: number, connection: number, shelf: Shelf): Script {
  const random = createRandom(seed, connection)
  const name = `${connection}-${random.text(4)}`
  const count = random.weighted([
    [10, 1],
    [8, 2],
    [6, 3],
    [6, random.int(4, 8)],
    [1, random.int(9, 24)],
  ])
  // Connections of good requests only, of odd ones only, and of both.
  const oddity = random.pick([0, 0.2, 0.5, 1])
  let bytes = ''
  for (let index = 0; index < count; index++) {
    const message = random.chance(0.06)
      ? loginMessage(random, shelf.logins)
      : requestMessage(random, `${name}.${index}`, shelf, oddity)
    bytes += message
  }
  if (random.chance(0.06 * oddity)) bytes = mutate(random, bytes)
  if (random.chance(0.05)) bytes = bytes.slice(0, random.int(1, bytes.length))
  return {
    name,
    bytes,
    cuts: cutsOf(random, bytes.length),
    leave: random.weighted([
      [12, 'close'],
      [6, 'half-close'],
      [2, 'abort'],
    ]),
    replies: Array.from({ length: count + 2 }, (_, index) => randomReply(random, `${name}.${index}`)),
  }
}

function requestMessage(random: Random, name: string, shelf: Shelf, oddity: number): string {
  const method = random.pick([
    'GET',
    'GET',
    'GET',
    'HEAD',
    'PUT',
    'PUT',
    'POST',
    'DELETE',
    'OPTIONS',
    'PATCH',
  ])
  const draft: Draft = {
    method,
    target: random.weighted([
      [20, `/b/${name}`],
      [5, `/b//${name}/%2e%2e/x?q=${random.text(3)}`],
      [1, `/v2/auth/token?${name}`],
      [1, `/v2/auth/tokens/${name}`],
    ]),
    version: 'HTTP/1.1',
    lines: ['Host: s', `Authorization: ${authorization(random, shelf)}`],
    body: '',
    before: '',
  }
  for (let lines = random.int(0, 3); lines > 0; lines--) {
    draft.lines.push(
      `${random.pick(['Accept', 'X-Amz-Meta-A', 'user-agent', 'RANGE', 'X-Meta'])}: ${random.text(5)}`,
    )
  }
  if (method !== 'GET' && method !== 'HEAD' && random.chance(0.7)) {
    const body = random.pick([
      random.text(random.int(0, 200)),
      trap(random),
      random.text(random.int(1, 40)).repeat(random.int(1, 1000)),
    ])
    if (random.chance(0.5)) {
      draft.lines.push(`Content-Length: ${body.length}`)
      draft.body = body
    } else {
      draft.lines.push('Transfer-Encoding: chunked')
      draft.body = chunksOf(random, body)
    }
  }
  if (random.chance(0.05)) draft.lines.push('Connection: close')
  if (random.chance(oddity)) {
    twist(draft, random)
    while (random.chance(0.3)) twist(draft, random)
  }
  const message = toBytes(draft)
  return random.chance(0.1 * oddity) ? mutate(random, message) : message
}

function toBytes({ before, method, target, version, lines, body }: Draft): string {
  return `${before}${method} ${target} ${version}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n${body}`
}

/** Mostly a good token in its usual form. */
function authorization(random: Random, { good, bad }: Shelf): string {
  const token = random.chance(0.85) ? random.pick(good) : random.pick(bad)
  if (random.chance(0.95)) return `Bearer ${token}`
  return random.pick([
    `bearer ${token}`,
    `BEARER    ${token}`,
    `Bearer\t${token}`,
    `Bearer${token}`,
    `Basic ${token}`,
    `Bearer ${token}, Bearer ${token}`,
    `Bearer ${token} x`,
    'Bearer',
    token,
    '',
  ])
}

/** A login: right, wrong or no login at all. */
function loginMessage(random: Random, logins: readonly KnownLogin[]): string {
  const login = random.pick(logins)
  const utf8 = (value: unknown) => Buffer.from(JSON.stringify(value), 'utf8').toString('latin1')
  const json = utf8(login)
  const body = random.weighted([
    [6, json],
    [2, utf8({ ...login, secret: random.text(20) })],
    [1, utf8({ ...login, accountId: random.text(5) })],
    [1, utf8({ ...login, [random.pick(['secret', 'accessKey'])]: random.pick([1, null, [], '', true]) })],
    [1, utf8({ ...login, extra: [1, { a: random.text(4) }] })],
    [1, `${json.slice(0, -1)},"secret":"x"}`],
    [1, `{"secret":"x",${json.slice(1)}`],
    [1, `${json.slice(0, -1)},"a":{"b":1,"\\u0062":2}}`],
    [
      1,
      random.pick([
        '',
        '{',
        '[]',
        'null',
        '"x"',
        '{}',
        `[${json}]`,
        `\xef\xbb\xbf${json}`,
        `${json} x`,
        '{"a":NaN}',
      ]),
    ],
    [1, `${json}${' '.repeat(random.pick([1, 16_000, 17_000]))}`],
    [1, json.replace('"secret"', '"\\u0073ecret"')],
    [3, mutate(random, json)],
  ])
  const lines = ['Host: s']
  if (random.chance(0.9)) {
    lines.push(
      `Content-Type: ${random.weighted([
        [8, 'application/json'],
        [2, 'application/json; charset=utf-8'],
        [1, 'APPLICATION/JSON;charset="UTF-8"'],
        [1, 'text/plain'],
        [1, 'application/json; charset=utf-16'],
        [1, 'application/jsonp'],
      ])}`,
    )
  }
  if (random.chance(0.03)) lines.push('Content-Encoding: gzip')
  if (random.chance(0.1)) lines.push('Expect: 100-continue')
  const draft: Draft = {
    method: random.weighted([
      [12, 'POST'],
      [1, 'PUT'],
    ]),
    target: random.pick(['/v2/auth/token', '/v2/auth/token/', '/v2/auth/token?x=1']),
    version: 'HTTP/1.1',
    lines,
    body,
    before: '',
  }
  if (random.chance(0.7)) lines.push(`Content-Length: ${body.length}`)
  else {
    lines.push('Transfer-Encoding: chunked')
    draft.body = chunksOf(random, body)
  }
  if (random.chance(0.1)) twist(draft, random)
  return toBytes(draft)
}

function cutsOf(random: Random, length: number): number[] {
  if (length < 2 || random.chance(0.6)) return []
  const cuts = new Set<number>()
  for (let count = random.int(1, 6); count > 0; count--) cuts.add(random.int(1, length - 1))
  return [...cuts].sort((a, b) => a - b)
}
