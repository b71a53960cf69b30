import fc from 'fast-check'
import t from 'tap'
import {
  type RequestHeadParts,
  upstreamRequestHead,
  upstreamTrailers,
} from '../../src/forward/towards-upstream.ts'
import type { LastForwarded } from '../../src/http/client-connection.ts'
import { createPeers } from '../../src/http/peer.ts'
import { admitted, ask, type Line, rawHeaders, type Wanted } from '../support/request-heads.ts'

const identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'token-1', expiresAt: 2_000_000_000 }
const stranger = createPeers([])({ remoteAddress: '192.0.2.7', localPort: 8080, tls: false })
const trusted = createPeers(['192.0.2.7'])({ remoteAddress: '192.0.2.7', localPort: 8080, tls: false })

const IDENTITY =
  'X-Authenticated-Account-Id: acme\r\nX-Authenticated-Access-Key: AK\r\n' +
  'X-Authenticated-Token-Id: token-1\r\nX-Authenticated-Token-Expires: 2000000000\r\n'
const REQUEST_ID = 'X-Request-Id: made-here\r\n'
const FORWARDED =
  'X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\n' +
  'X-Forwarded-Host: storage.example\r\nForwarded: for=192.0.2.7;proto=http;host="storage.example"\r\n'
/** What stands at the end of every head. */
const OURS = `${FORWARDED}${IDENTITY}${REQUEST_ID}\r\n`

/** The head that the upstream gets. */
function head(wanted: Wanted, parts: Partial<RequestHeadParts> = {}): string {
  return upstreamRequestHead({
    request: admitted(wanted),
    rawHeaders: rawHeaders(wanted),
    identity,
    requestId: 'made-here',
    peer: stranger,
    forwardAuthorization: false,
    upstreamHost: 'upstream.internal:9000',
    ...parts,
  })
}

t.test('what the client sent passes byte for byte, and ours follows it', async (t) => {
  const wanted: Wanted = {
    method: 'PUT',
    url: '/b//c/%2e%2e/d;x=1?a=%20&b',
    lines: [
      ['x-dup', '1'],
      ['hOsT', 'storage.example'],
      ['X-Meta_Key', 'a'],
      ['X-Dup', '2'],
      ['Content-length', '5'],
      ['X-Latin', 'caf\u00e9'],
      ['X-Empty', ''],
      ['expect', '100-continue'],
      ['traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
      ['Cookie', 'a=1; b=2'],
      ['X-Forwarded-Prefix', '/p'],
      ['X-Original-URL', '/v2/auth/token'],
    ],
  }
  t.equal(
    head(wanted),
    'PUT /b//c/%2e%2e/d;x=1?a=%20&b HTTP/1.1\r\n' +
      'x-dup: 1\r\nhOsT: storage.example\r\nX-Meta_Key: a\r\nX-Dup: 2\r\nContent-length: 5\r\nX-Latin: caf\u00e9\r\n' +
      'X-Empty: \r\nexpect: 100-continue\r\n' +
      'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nCookie: a=1; b=2\r\n' +
      `X-Forwarded-Prefix: /p\r\nX-Original-URL: /v2/auth/token\r\n${OURS}`,
  )
})

/** What is left, between the request line and ours, of the lines behind `Host`. */
function rest(more: readonly Line[], parts: Partial<RequestHeadParts> = {}, ours = OURS): string {
  const text = head({ more }, parts)
  const before = 'GET / HTTP/1.1\r\nHost: storage.example\r\n'
  if (!text.startsWith(before) || !text.endsWith(ours)) throw new Error(`an unexpected head: ${text}`)
  return text.slice(before.length, text.length - ours.length)
}

t.test("a chunked body stays chunked, in the client's own spelling", async (t) => {
  t.equal(
    rest([['Transfer-encoding', 'CHUNKED'] as const, ['Trailer', 'X-Sum'] as const]),
    'Transfer-encoding: CHUNKED\r\nTrailer: X-Sum\r\n',
  )
})

t.test('an absolute target arrives in origin form', async (t) => {
  t.match(head({ url: 'http://STORAGE.example?x' }), /^GET \/\?x HTTP\/1\.1\r\nHost: storage\.example\r\n/)
})

t.test('the token goes no further unless the settings say so, and never on a public route', async (t) => {
  const more: Line[] = [['authorization', 'Bearer a']]
  t.equal(rest(more), '')
  t.equal(rest(more, { forwardAuthorization: true }), 'authorization: Bearer a\r\n')
  const isPublic = { identity: undefined }
  const ours = `${FORWARDED}${REQUEST_ID}\r\n`
  t.equal(rest(more, isPublic, ours), '')
  t.equal(rest(more, { ...isPublic, forwardAuthorization: true }, ours), '')
})

t.test('nothing that claims an identity passes, in any spelling, on a public route neither', async (t) => {
  const more: Line[] = [
    'X-Authenticated-Account-Id',
    'x-authenticated-ACCOUNT-id',
    'X_Authenticated_Account_Id',
    'X-Authenticated_Account-Id',
    'x.authenticated.account.id',
    'X~Authenticated~Account~Id',
    '_X-Authenticated-Account-Id',
    'X-Authenticated-Account-Id_',
    'X-Authenticated-Access-Key',
    'X-Authenticated-Token-Expires',
    'X-Authenticated-Anything',
    'X-Authenticated-',
    'X_Request_Id',
    'x.forwarded.for',
    '_Forwarded',
  ].map((name): Line => [name, 'root'])
  t.equal(rest(more), '')
  t.equal(rest(more, { identity: undefined }, `${FORWARDED}${REQUEST_ID}\r\n`), '')
  t.equal(rest(more, { peer: trusted }), '', 'from a trusted peer neither')
})

t.test('hop-by-hop headers end here', async (t) => {
  const more: Line[] = [
    ['Connection', 'keep-alive, X-Private, x_private2'],
    ['connection', 'X-Other,expect,trailer'],
    ['Keep-Alive', 'timeout=5'],
    ['Proxy-Connection', 'keep-alive'],
    ['Proxy-Authorization', 'Basic YTpi'],
    ['TE', 'trailers'],
    ['HTTP2-Settings', 'AAMAAABkAAQAAP__'],
    ['x-private', '1'],
    ['X-PRIVATE', '2'],
    ['X_Private2', '3'],
    ['X-Other', '4'],
    ['Expect', '100-continue'],
    ['Trailer', 'X-Sum'],
    ['X-Kept', 'keep-alive'],
  ]
  t.equal(rest(more), 'X-Kept: keep-alive\r\n')
})

t.test('an upgrade is asked for in our words, or not at all', async (t) => {
  const more: Line[] = [
    ['Connection', 'upgrade, x-a'],
    ['Upgrade', 'WebSocket, h2c'],
    ['X-A', '1'],
    ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
  ]
  const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
  t.equal(rest(more), key)
  const ours = `${FORWARDED}${IDENTITY}Connection: Upgrade\r\nUpgrade: websocket\r\n${REQUEST_ID}\r\n`
  t.equal(rest(more, { upgradeTo: 'websocket' }, ours), key)
})

t.test(
  'a request id that can be kept stands where the client put it, any other gives way to ours',
  async (t) => {
    t.equal(
      head(
        { more: [['x-request-id', 'client-1'] as const, ['X-A', '1'] as const] },
        { requestId: 'client-1' },
      ),
      `GET / HTTP/1.1\r\nHost: storage.example\r\nx-request-id: client-1\r\nX-A: 1\r\n${FORWARDED}${IDENTITY}\r\n`,
    )
    const twice: Line[] = [
      ['X-Request-Id', 'a'],
      ['X-Request-Id', 'a'],
    ]
    t.equal(rest(twice), '')
    t.equal(rest([['X-Request-Id', 'a b']]), '')
    t.equal(
      head({ more: [['X-Request-Id', 'client-1'] as const, ['Connection', 'x-request-id'] as const] }),
      `GET / HTTP/1.1\r\nHost: storage.example\r\nX-Request-Id: client-1\r\n${FORWARDED}${IDENTITY}\r\n`,
      'nominated or not: it is told on every hop',
    )
  },
)

t.test('what a peer says of clients behind it counts when it is trusted', async (t) => {
  const more: Line[] = [
    ['x-forwarded-for', '198.51.100.1'],
    ['X-Forwarded-Host', 'public.example'],
    ['X-Forwarded-Proto', 'https'],
    ['X-Forwarded-Port', '443'],
    ['Forwarded', 'for=198.51.100.1'],
  ]
  t.equal(rest(more), '')
  const said = `${more.map(([name, value]) => `${name}: ${value}\r\n`).join('')}`
  t.equal(rest(more, { peer: trusted }, `${IDENTITY}${REQUEST_ID}\r\n`), said)
  t.equal(rest([], { peer: trusted }), '', 'ours where it says nothing')
  t.equal(
    rest([['Connection', 'Forwarded'] as const, ['Forwarded', 'for=a'] as const], { peer: trusted }),
    '',
    'ours where it says so to us alone',
  )
})

t.test('a request of HTTP/1.0 becomes one of HTTP/1.1, with a host', async (t) => {
  t.equal(
    head({ lines: [['X-A', '1']], httpVersion: '1.0' }),
    'GET / HTTP/1.1\r\nX-A: 1\r\nHost: upstream.internal:9000\r\n' +
      'X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\n' +
      `Forwarded: for=192.0.2.7;proto=http\r\n${IDENTITY}${REQUEST_ID}\r\n`,
  )
  t.match(head({ httpVersion: '1.0' }), /^GET \/ HTTP\/1\.1\r\nHost: storage\.example\r\nX-Forwarded-For/)
})

t.test('what is remembered of a connection changes nothing but the work', async (t) => {
  const identities = [identity, { ...identity, accountId: 'other' }, undefined]
  const lists: Wanted[] = [
    {},
    { more: [['X-A', '1']] },
    { more: [['X-Request-Id', 'client-1']] },
    { lines: [['X-A', '1']], httpVersion: '1.0' },
    { lines: [], httpVersion: '1.0' },
  ]
  const upgrade: Wanted = {
    more: [
      ['Connection', 'upgrade'],
      ['Upgrade', 'websocket'],
    ],
  }
  const last: LastForwarded = { rawHeaders: undefined, identity: undefined, lines: '', isFlat: false }
  const ways = [...lists, upgrade].flatMap((wanted) => {
    // A connection gives the same list again.
    const list = rawHeaders(wanted)
    return identities.map((identity) => ({ wanted, list, identity }))
  })
  for (const [number, { wanted, list, identity }] of [...ways, ...ways.reverse()].entries()) {
    for (const url of ['/a', '/b', '/c']) {
      const parts: Partial<RequestHeadParts> = {
        rawHeaders: list,
        identity,
        requestId: `id-${number}`,
        upstreamHost: `upstream-${number}`, // another prefix may have another one
        upgradeTo: wanted === upgrade ? 'websocket' : undefined,
      }
      t.equal(
        head({ ...wanted, url }, { ...parts, last }),
        head({ ...wanted, url }, parts),
        `${number} ${url}`,
      )
    }
  }
})

t.test('trailers pass, but for those that would frame, route or identify', async (t) => {
  t.equal(upstreamTrailers([]), '\r\n')
  t.equal(
    upstreamTrailers(['X-Sum', 'abc', 'x-sum', 'def', 'X_Meta', '']),
    'X-Sum: abc\r\nx-sum: def\r\nX_Meta: \r\n\r\n',
  )
  for (const name of [
    'X-Authenticated-Account-Id',
    'x_authenticated_account_id',
    'Authorization',
    'authorization_',
    'Content-Length',
    'Content_Length',
    'Transfer-Encoding',
    'Host',
    'Connection',
    'Upgrade',
    'TE',
    'Keep-Alive',
    'Expect',
    'Trailer',
    'X-Request-Id',
    'X_Request_Id',
    'X-Forwarded-For',
    'Forwarded',
  ]) {
    t.equal(upstreamTrailers([name, 'root', 'X-Sum', 'abc']), 'X-Sum: abc\r\n\r\n', name)
  }
})

/** The names that are ours to set, each exactly once. */
const SET_HERE = [
  'X-Request-Id',
  'X-Forwarded-For',
  'X-Forwarded-Proto',
  'X-Forwarded-Port',
  'X-Forwarded-Host',
  'Forwarded',
  'X-Authenticated-Account-Id',
  'X-Authenticated-Access-Key',
  'X-Authenticated-Token-Id',
  'X-Authenticated-Token-Expires',
]

/** How the most careless of readers reads a name. */
function carelessly(name: string): string {
  return name
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '-')
    .replace(/^-+|-+$/g, '')
}

const punctuation = fc.constantFrom(..."-_.~!#$%&'*+^`|")
/** A name spelled otherwise: in odd case, with other signs for its dashes, with signs around it. */
const spelling = (name: string) =>
  fc
    .tuple(
      fc.array(fc.tuple(fc.boolean(), punctuation, fc.boolean()), {
        minLength: name.length,
        maxLength: name.length,
      }),
      fc.array(punctuation, { maxLength: 2 }),
      fc.array(punctuation, { maxLength: 2 }),
    )
    .map(([odd, before, behind]) => {
      const spelled = [...name].map((character, at) => {
        const [upper, sign, keep] = odd[at] ?? [false, '-', true]
        if (character === '-') return keep ? '-' : sign
        return upper ? character.toUpperCase() : character.toLowerCase()
      })
      return [...before, ...spelled, ...behind].join('')
    })
const token = fc.string({ unit: fc.constantFrom(...'abXZ09-_.~'), minLength: 1, maxLength: 20 })
const claimed = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...SET_HERE).chain(spelling) },
  { weight: 1, arbitrary: fc.constantFrom(...SET_HERE) },
  { weight: 1, arbitrary: token.map((ending) => `X-Authenticated-${ending}`).chain(spelling) },
  { weight: 1, arbitrary: token },
)
/** Field values as the parser lets them through. */
const fieldValue = fc
  .string({ unit: fc.constantFrom(...'root\t \u00e9:,;="'), maxLength: 12 })
  .map((text) => text.trim())
const nomination = fc.array(fc.oneof(fc.constantFrom(...SET_HERE), token), { maxLength: 3 })

t.test('no header list of a client yields a line that reads like one of ours, beside ours', async (t) => {
  let forwarded = 0
  const property = fc.property(
    fc.array(fc.tuple(claimed, fieldValue), { maxLength: 6 }),
    nomination,
    (lines, names) => {
      const wanted: Wanted = {
        more: [...lines, ['Connection', names.join(', ')] as const, ['Authorization', 'Bearer a'] as const],
      }
      const admission = ask(wanted)
      if (!admission.ok) return true // refused: nothing is forwarded
      forwarded++
      const requestId = admission.request.requestId ?? 'made-here'
      const [, ...received] = head(wanted, { requestId }).slice(0, -4).split('\r\n')
      const read = received.map((line) => [carelessly(line.slice(0, line.indexOf(': '))), line] as const)
      const ours = new Set(
        `X-Request-Id: ${requestId}\r\n${FORWARDED}${IDENTITY}`.toLowerCase().split('\r\n'),
      )
      for (const name of SET_HERE) {
        const [first, ...more] = read.filter(([reading]) => reading === name.toLowerCase())
        if (first === undefined || more.length > 0 || !ours.has(first[1].toLowerCase())) return false
      }
      const claims = read.filter(([reading]) => reading.startsWith('x-authenticated-'))
      return claims.length === 4 && !read.some(([reading]) => reading === 'authorization')
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 3000 }))
  t.ok(forwarded > 300, `${forwarded} of the requests were forwarded`)
})
