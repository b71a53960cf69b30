/**
 * What the upstream of the fuzz run answers: most of the time a good response of any form, sometimes none at all.
 *
 * In: a source of choices and the name of the request that will be answered. Out: the bytes to send, in which pieces,
 * and how the connection is left behind.
 *
 * @module
 */
import type { Ending } from './expected-responses.ts'
import { mutate } from './mutate.ts'
import type { Random } from './random.ts'
import { chunksOf, respelled } from './request-twists.ts'

/** How one request is answered. */
export interface Reply {
  /** Each is one write; Latin-1. */
  readonly pieces: readonly string[]
  readonly ending: Ending
  /** It is sent as soon as the request's head is there, whatever follows. */
  readonly early: boolean
}

/** The plainest reply, named after its request. */
export function plainReply(name: string): Reply {
  return {
    pieces: [`HTTP/1.1 200 OK\r\nX-Fz: ${name}\r\nContent-Length: 2\r\n\r\nok`],
    ending: 'keep',
    early: false,
  }
}

/** A reply; `name` stands in it, so that whoever gets it can tell whose it was. */
export function randomReply(random: Random, name: string): Reply {
  return random.weighted<() => Reply>([
    [50, () => plainReply(name)],
    [35, () => ({ ...goodReply(random, name), early: random.chance(0.03) })],
    [15, () => badReply(random, name)],
  ])()
}

/** Header lines that a response may have, and what of them may not pass. */
const LINES = [
  'Set-Cookie: a=1',
  'Set-Cookie: b=2',
  'ETag: "x"',
  'Content-Type: text/plain; charset=utf-8',
  'Date: Thu, 01 Jan 1970 00:00:00 GMT',
  'X-Under_score: kept',
  'X-Bytes: \xe4\xff',
  'X-Empty:',
  'X-Request-Id: of-the-upstream',
  'Keep-Alive: timeout=5',
  'Connection: keep-alive',
  'Connection: x-nominated',
  'X-Nominated: gone',
  'Proxy-Status: someone-else; error=dns_error',
]

function goodReply(random: Random, name: string): Reply {
  const status = random.pick([
    200, 200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 409, 412, 416, 429, 500, 503,
  ])
  const body = random.pick([
    '',
    'x',
    random.text(random.int(1, 300)),
    `{"n":"${name}"}`,
    random.text(20).repeat(1000),
  ])
  const lines = [`X-Fz: ${name}`]
  for (let count = random.int(0, 5); count > 0; count--) {
    lines.splice(random.int(0, lines.length), 0, random.pick(LINES))
  }
  if (random.chance(0.1)) lines.push(`${respelled('X-Authenticated-Account-Id', random)}: echoed`)
  const before = random.weighted([
    [20, ''],
    [1, 'HTTP/1.1 100 Continue\r\n\r\n'],
    [1, 'HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n'],
    [1, 'HTTP/1.1 102 Processing\r\n\r\n'],
  ])
  const head = (framing: string[]) =>
    `${before}HTTP/1.1 ${status} ${random.pick(['OK', '', 'Any Reason'])}\r\n${[...lines, ...framing].join('\r\n')}\r\n\r\n`
  const bodyless = status === 204 || status === 304
  switch (random.pick(['length', 'length', 'chunked', 'close'] as const)) {
    case 'chunked':
      if (bodyless) return cut(random, head([]), 'keep')
      return cut(
        random,
        head(['Transfer-Encoding: chunked']) +
          chunksOf(random, body, random.pick(['', '', 'X-Sum: 1\r\n', 'X-Authenticated-Token-Id: 1\r\n'])),
        'keep',
      )
    case 'close':
      return cut(random, head(['Connection: close']) + (bodyless ? '' : body), 'close')
    default:
      return cut(
        random,
        head([`Content-Length: ${status === 204 ? 0 : body.length}`]) + (bodyless ? '' : body),
        'keep',
      )
  }
}

function badReply(random: Random, name: string): Reply {
  const good = random.chance(0.5) ? plainReply(name) : goodReply(random, name)
  const bytes = good.pieces.join('')
  const start = `HTTP/1.1 200 OK\r\nX-Fz: ${name}\r\n`
  return random.weighted<() => Reply>([
    [
      4,
      () =>
        cut(random, mutate(random, bytes), random.chance(0.03) ? 'keep' : random.pick(['close', 'reset'])),
    ],
    [3, () => cut(random, bytes.slice(0, random.int(0, bytes.length - 1)), random.pick(['close', 'reset']))],
    [2, () => ({ pieces: [], ending: random.pick(['close', 'reset']), early: random.chance(0.5) })],
    // Bytes that nobody asked for: a whole response, for whoever comes next.
    [2, () => ({ ...good, pieces: [bytes + plainReply('stray').pieces.join('')], ending: good.ending })],
    [
      3,
      () =>
        cut(
          random,
          random.pick([
            `${start}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
            `${start}Content-Length: 2\r\nContent-Length: 3\r\n\r\nokk`,
            `${start}Content-Length: 2, 2\r\n\r\nok`,
            `${start}Content-Length: -2\r\n\r\nok`,
            `${start}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
            `${start}Transfer-Encoding: chunked\r\n\r\n2;x\nok\r\n0\r\n\r\n`,
            `${start}Transfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n`,
            `${start}Transfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nok`,
            `${start}X-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\nok`,
            `${start}no colon\r\nContent-Length: 2\r\n\r\nok`,
            `${start}X-Large: ${'z'.repeat(20_000)}\r\nContent-Length: 2\r\n\r\nok`,
            `${start.replaceAll('\r', '')}Content-Length: 2\n\nok`,
            'HTTP/1.1 1000 Much\r\nContent-Length: 2\r\n\r\nok',
            'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok',
            'HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok',
            'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n',
            'SSH-2.0-OpenSSH_9.6\r\n',
            '\0\xff garbage',
            'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(40),
          ]),
          random.pick(['close', 'reset']),
        ),
    ],
  ])()
}

/** Cuts bytes into pieces: most of the time into one. */
function cut(random: Random, bytes: string, ending: Ending): Reply {
  const pieces: string[] = []
  let left = bytes
  if (random.chance(0.3)) {
    for (let cuts = random.int(1, 4); cuts > 0 && left.length > 1; cuts--) {
      const at = random.int(1, left.length - 1)
      pieces.push(left.slice(0, at))
      left = left.slice(at)
    }
  }
  if (left !== '') pieces.push(left)
  return { pieces, ending, early: false }
}
