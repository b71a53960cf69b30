/**
 * Ways in which a request can be odd.
 *
 * In: a plain request. Out: the same with one thing about it that a proxy has been fooled with somewhere, or that is
 * rare but right. Each twist is a case of its own class: names that read like ours, framing said twice or oddly,
 * targets of every form, hosts, nominations, sizes, trailers, bytes that end lines.
 *
 * @module
 */
import type { Random } from './random.ts'

/** A request that has not been put into bytes yet. */
export interface Draft {
  method: string
  target: string
  version: string
  /** Header lines as they stand on the wire, without their ends. */
  lines: string[]
  /** What stands behind the empty line. */
  body: string
  /** What stands before the request line. */
  before: string
}

/** Changes a draft. */
type Twist = (draft: Draft, random: Random) => void

const OUR_NAMES = [
  'X-Authenticated-Account-Id',
  'X-Authenticated-Access-Key',
  'X-Authenticated-Token-Id',
  'X-Authenticated-Token-Expires',
  'X-Authenticated-',
  'X-Authenticated-Anything',
]

/** Adds a line at a random place. */
function addLine(draft: Draft, random: Random, line: string): void {
  draft.lines.splice(random.int(0, draft.lines.length), 0, line)
}

/** Replaces the lines of a name, or adds one. */
function setLine(draft: Draft, random: Random, name: string, line: string): void {
  draft.lines = draft.lines.filter((other) => !other.toLowerCase().startsWith(`${name}:`))
  addLine(draft, random, line)
}

const add =
  (lines: readonly string[]): Twist =>
  (draft, random) =>
    addLine(draft, random, random.pick(lines))

const withoutFraming = (draft: Draft) => {
  draft.lines = draft.lines.filter((line) => !/^(?:content-length|transfer-encoding):/i.test(line))
}

/** Another spelling of a name: in another case, or with its dashes read otherwise by somebody. */
export function respelled(name: string, random: Random): string {
  const spelled = random.chance(0.6)
    ? name.replace(/-/g, () => random.pick(['-', '_', '_', '.', '~', '!']))
    : name
  return random.pick([
    spelled,
    spelled.toLowerCase(),
    spelled.toUpperCase(),
    `${spelled}_`,
    `-${spelled}`,
    `${spelled}-`,
  ])
}

/** Puts a body into chunks of odd sizes. */
export function chunksOf(random: Random, body: string, trailers = ''): string {
  let chunks = ''
  for (let at = 0; at < body.length; ) {
    const size = random.pick([1, 2, 7, 16, random.int(1, body.length)])
    const part = body.slice(at, at + size)
    const digits = part.length.toString(16)
    const spelled = random.pick([digits, digits, digits.toUpperCase(), `0${digits}`, `000${digits}`])
    const extension = random.weighted([
      [8, ''],
      [1, ';a=b'],
      [1, ';name'],
      [1, ';q="quoted; text"'],
    ])
    chunks += `${spelled}${extension}\r\n${part}\r\n`
    at += part.length
  }
  return `${chunks}${random.pick(['0', '0', '0', '00', '0;last=yes'])}\r\n${trailers}\r\n`
}

/** Makes a request chunked. */
function setChunked(draft: Draft, random: Random, body: string, trailers = ''): void {
  withoutFraming(draft)
  addLine(draft, random, 'Transfer-Encoding: chunked')
  draft.body = chunksOf(random, body, trailers)
}

/** A request that must never turn up anywhere, to be hidden in bodies. */
export function trap(random: Random): string {
  const name = `trap-${random.text(8)}`
  return `${random.pick(['GET', 'DELETE', 'POST'])} /${name} HTTP/1.1\r\nHost: s\r\nX-Authenticated-Account-Id: evil\r\nContent-Length: 0\r\n\r\n`
}

const CODINGS = [
  'Transfer-Encoding: gzip, chunked',
  'Transfer-Encoding: chunked, identity',
  'Transfer-Encoding: identity',
  'Transfer-Encoding: chunked;q=1',
  'Transfer-Encoding:',
  'Transfer-Encoding: \x0bchunked',
  'Transfer-Encoding: xchunked',
  'Transfer-Encoding: chunked, chunked',
  'Transfer-Encoding: "chunked"',
  'Transfer-Encoding : chunked',
  'Transfer-Encoding: chunked\0',
  'Transfer-Encoding:\r\n chunked',
  'Transfer-Encoding: CHUNKED',
  'Transfer-Encoding:\tchunked\t',
  'transfer-encoding: Chunked',
  'Transfer_Encoding: chunked',
  'Transfer-Encoding_: chunked',
  'Transfer.Encoding: chunked',
]

const LENGTHS = [
  '+5',
  '-0',
  '0x5',
  '5,5',
  '05',
  '5 ',
  '',
  ' 5',
  '5;a',
  '5.0',
  '1e1',
  '\x0b5',
  '0',
  '5 5',
  '\xd9\xa5',
]

/** The twists, each as likely as its weight. */
const TWISTS: readonly (readonly [weight: number, twist: Twist])[] = [
  // Names that are ours, or read like ours.
  [
    6,
    (draft, random) =>
      addLine(
        draft,
        random,
        `${respelled(random.pick(OUR_NAMES), random)}: ${random.pick(['evil', '', '1'])}`,
      ),
  ],
  [
    3,
    (draft, random) =>
      addLine(draft, random, `${respelled(random.pick(['Transfer-Encoding', 'Content-Length']), random)}: 5`),
  ],
  [2, (draft, random) => addLine(draft, random, `${respelled('Authorization', random)}: Bearer x`)],
  [
    2,
    (draft, random) =>
      addLine(
        draft,
        random,
        `${respelled(random.pick(['X-Forwarded-For', 'X-Forwarded-Host']), random)}: 1.2.3.4`,
      ),
  ],
  [
    2,
    add([
      'Forwarded: for=1.2.3.4',
      'X-Forwarded-Proto: https',
      'X-Forwarded-Port: 1',
      'X-Original-URL: /admin',
      'X-HTTP-Method-Override: DELETE',
    ]),
  ],
  [
    3,
    add([
      'x-amz-meta-my_key: v',
      'X_Plain: a',
      'X.Plain: b',
      'x-empty:',
      'X-Plain:no space',
      'X-Eight-Bit: \xe4\xff',
    ]),
  ],
  [
    3,
    (draft, random) =>
      addLine(
        draft,
        random,
        `X-Request-Id: ${random.pick([random.text(12), 'a b', '', 'x'.repeat(129), 'ok-1.2_3', '\xe4'])}`,
      ),
  ],
  // Framing.
  [4, (draft, random) => setLine(draft, random, 'content-length', `Content-Length: ${random.pick(LENGTHS)}`)],
  [2, (draft, random) => addLine(draft, random, `Content-Length: ${random.int(0, 60)}`)],
  [4, (draft, random) => addLine(draft, random, random.pick(CODINGS))],
  [2, (draft, random) => setLine(draft, random, 'transfer-encoding', random.pick(CODINGS))],
  [
    3,
    (draft, random) => {
      withoutFraming(draft)
      addLine(draft, random, random.pick(CODINGS))
      draft.body = chunksOf(random, trap(random))
    },
  ],
  [
    4,
    (draft, random) => {
      draft.method = random.pick(['DELETE', 'OPTIONS', 'GET', 'HEAD', 'PUT', 'PATCH', 'POST'])
      setChunked(draft, random, trap(random))
    },
  ],
  [
    3,
    (draft, random) => {
      setChunked(draft, random, 'body')
      draft.body = random.pick([
        '0x5\r\nhello\r\n0\r\n\r\n',
        '+5\r\nhello\r\n0\r\n\r\n',
        '5 \r\nhello\r\n0\r\n\r\n',
        '5 ;a\r\nhello\r\n0\r\n\r\n',
        '00000000000000005\r\nhello\r\n0\r\n\r\n',
        'fffffffffffffffff\r\nhello\r\n0\r\n\r\n',
        '-5\r\nhello\r\n0\r\n\r\n',
        '5\nhello\n0\n\n',
        '5\r\nhello0\r\n\r\n',
        '5\r\nhello\n0\r\n\r\n',
        '5\rhello\r\n0\r\n\r\n',
        `5;${'x'.repeat(random.int(100, 20_000))}\r\nhello\r\n0\r\n\r\n`,
        '5;a\nb\r\nhello\r\n0\r\n\r\n',
        '5;a\0\r\nhello\r\n0\r\n\r\n',
        '5\r\nhello\r\n0\r\n',
        '5\r\nhello\r\n0\r\nx\r\n\r\n',
        `${'1\r\na\r\n'.repeat(40)}0\r\n\r\n`,
      ])
    },
  ],
  [
    3,
    (draft, random) =>
      setChunked(
        draft,
        random,
        random.text(20),
        random.pick([
          'X-Sum: 1\r\n',
          'X-Sum: 1\r\nx-two:2\r\nX-Sum: 3\r\n',
          `${respelled(random.pick(OUR_NAMES), random)}: evil\r\n`,
          'Content-Length: 3\r\n',
          'Transfer-Encoding: chunked\r\n',
          'Authorization: Bearer x\r\n',
          'Host: evil\r\n',
          ' folded\r\n',
          'no colon\r\n',
          `X-Long: ${'y'.repeat(3000)}\r\n`,
        ]),
      ),
  ],
  // Bodies that hold requests, and bytes behind bodies.
  [
    3,
    (draft, random) => {
      const body = trap(random)
      withoutFraming(draft)
      addLine(draft, random, `Content-Length: ${body.length + random.pick([0, 0, 0, -1, 1, -9])}`)
      draft.body = body
    },
  ],
  [
    2,
    (draft, random) => {
      draft.body += random.pick(['x', '\r\n', '\0', 'GET', trap(random), '\r\n\r\n'])
    },
  ],
  // Targets and request lines.
  [
    4,
    (draft, random) => {
      const { target } = draft
      draft.target = random.pick([
        `/${target}`,
        `${target}/../x//y/./z`,
        `${target}%00%2f%2E%2e%zz%`,
        `${target}?a=b&c=%20?x#y`,
        `${target}#fragment`,
        `${target}\\back|pipe"quote<>^\`{}`,
        `${target};x=1@evil:80`,
        `${target}\xe4\xff`,
        `${target}\x01`,
        `${target}\t`,
        `${target}?/v2/auth/token`,
        `/v2/auth/token/..;${target}`,
        `/v2/auth/%74oken${target}`,
        `//v2/auth/token${target}`,
        target.slice(1),
        '*',
        `${target}${'l'.repeat(random.int(1000, 17_000))}`,
      ])
    },
  ],
  [
    3,
    (draft, random) => {
      const { target } = draft
      draft.target = random.pick([
        `http://s${target}`,
        `HTTP://S${target}`,
        `https://s${target}`,
        `http://evil${target}`,
        `http://s@evil${target}`,
        `http://u:p@s${target}`,
        `http://s:80${target}`,
        `http://[::1${target}`,
        `http://s?${target}`,
        `ftp://s${target}`,
        `http:${target}`,
        's:80',
      ])
    },
  ],
  [
    3,
    (draft, random) => {
      draft.method = random.pick([
        'TRACE',
        'CONNECT',
        'TRACK',
        'get',
        'G'.repeat(1024),
        'PROPFIND',
        'M-SEARCH',
        'PRI',
        'MKCOL',
        'G\x00T',
        'GE T',
        '',
      ])
    },
  ],
  [
    2,
    (draft, random) => {
      draft.version = random.pick([
        'HTTP/1.0',
        'HTTP/1.0',
        'HTTP/1.2',
        'HTTP/2.0',
        'HTTP/0.9',
        'http/1.1',
        'HTTP/1.1 ',
        ' HTTP/1.1',
        'HTTP/1.10',
        'HTTP/11',
        '',
      ])
    },
  ],
  [
    2,
    (draft, random) => {
      draft.version = 'HTTP/1.0'
      draft.lines.push(random.pick(['Connection: keep-alive', 'Connection: Keep-Alive, x', 'X-Plain: y']))
    },
  ],
  [
    1,
    (draft, random) => {
      draft.before = random.pick([
        '\r\n',
        '\r\n\r\n',
        '\n',
        ' ',
        '\0',
        '\x16\x03\x01\x02\x00',
        'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      ])
    },
  ],
  // Hosts.
  [
    3,
    (draft, random) => {
      const host = random.pick([
        '',
        'a, b',
        'u@h',
        'h/p',
        's:99999',
        's:',
        '[::1]',
        '[::1',
        '[fe80::1%25x]',
        'h\\p',
        'h?x',
        'a_b',
        'ex%41mple',
        's:80:80',
        '\xe4',
      ])
      setLine(draft, random, 'host', `Host: ${host}`)
    },
  ],
  [1, (draft, random) => addLine(draft, random, 'host: s')],
  [
    1,
    (draft) => {
      draft.lines = draft.lines.filter((line) => !/^host:/i.test(line))
    },
  ],
  // Who is heard: tokens twice, and connection options.
  [1, (draft, random) => addLine(draft, random, 'Authorization: Bearer x')],
  [
    4,
    (draft, random) => {
      addLine(draft, random, 'X-Plain: dropped')
      const option = random.pick([
        'close',
        'close',
        'keep-alive',
        'X-Plain',
        'x-plain , ,x-other',
        'host',
        'Authorization',
        'content-length',
        'Transfer-Encoding',
        'x-authenticated-account-id',
        'X_Authenticated_Token-Id',
        'content_length',
        'x-request-id, x-forwarded-for',
        'expect',
        'upgrade',
        'a b',
        '',
        '"close"',
        'keep-alive, close',
      ])
      addLine(draft, random, `${random.pick(['Connection', 'connection', 'CONNECTION'])}: ${option}`)
    },
  ],
  [
    2,
    add([
      'Keep-Alive: timeout=5',
      'Proxy-Connection: keep-alive',
      'Proxy-Connection: close',
      'TE: trailers',
      'Trailer: X-Sum',
      'Trailer: X-Authenticated-Account-Id',
      'Proxy-Authorization: Basic eA==',
      'Connection_: close',
      'T_E: x',
    ]),
  ],
  [
    2,
    add([
      'Expect: 100-continue',
      'Expect: 100-Continue',
      'Expect: 200-ok',
      'expect: 100-continue, x',
      'Expect:',
      'Expect_: 100-continue',
    ]),
  ],
  [
    2,
    (draft, random) => {
      if (random.chance(0.8)) addLine(draft, random, 'Connection: Upgrade')
      addLine(draft, random, `Upgrade: ${random.pick(['websocket', 'h2c', 'TLS/1.0', ''])}`)
      if (random.chance(0.3)) addLine(draft, random, 'HTTP2-Settings: AAMAAABkAAQAAP__')
    },
  ],
  // Field lines that are none, and heads that are large.
  [
    3,
    add([
      'X-Folded: a\r\n b',
      ' X-Space: a',
      'X-Space : a',
      ': no name',
      'no colon',
      'X-Nul: a\0b',
      'X-Cr: a\rb',
      'X-Lf: a\nX-Authenticated-Account-Id: evil',
      'X-Del: a\x7fb',
      'X\xe4: a',
      'X Y: a',
      'X-Tab:\ta\tb\t',
      'X-Long-Space:     a     ',
    ]),
  ],
  [
    1,
    (draft, random) => {
      for (let lines = random.pick([150, 199, 200, 201, 400, 1100]); lines > 0; lines--)
        draft.lines.push('a: b')
    },
  ],
  [
    1,
    (draft, random) =>
      addLine(draft, random, `X-Large: ${'z'.repeat(random.pick([8000, 15_000, 16_384, 17_000, 40_000]))}`),
  ],
]

/** Twists a draft once. */
export function twist(draft: Draft, random: Random): void {
  random.weighted(TWISTS)(draft, random)
}
