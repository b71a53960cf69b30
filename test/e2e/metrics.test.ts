/**
 * Metrics over sockets. Whatever a client does after a complete response, the request is
 * counted once, as it was sent.
 */
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { ACCESS_FAILURES, LOGIN_FAILURES, UPSTREAM_OUTCOMES } from '../../src/base/errors.ts'
import { VERSION } from '../../src/base/version.ts'
import { RELOAD_RESULTS } from '../../src/reload/reloadable.ts'
import { eventually } from '../support/eventually.ts'
import { parseMetrics } from '../support/prometheus.ts'
import { rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSecured } from '../support/secured.ts'
import { type Setup, startSetup } from '../support/setup.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const post = (fields: object) => {
  const body = JSON.stringify(fields)
  return `POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}

/** Every value that a label of the sidecar's metrics may have, of one metric or of all. */
const LABELS: Readonly<Record<string, readonly string[] | RegExp>> = {
  route: ['token_issue', 'token_check', 'logout', 'link_issue', 'proxy', 'link', 'public', 'forward_auth'],
  method: ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'other'],
  status: /^[1-9]\d\d$/,
  'auth_sidecar_token_checks_total result': ['accepted', 'rejected'],
  'auth_sidecar_reloads_total result': RELOAD_RESULTS,
  subject: ['keys', 'credentials', 'revocations'],
  reason: ['ok', ...ACCESS_FAILURES, ...LOGIN_FAILURES],
  upstream: ['/', '/dead'],
  outcome: UPSTREAM_OUTCOMES,
  class: ['2xx', '3xx', '4xx', '5xx'],
  direction: ['in', 'out'],
  kid: ['es256-key'],
  version: [VERSION],
  node: [process.version],
  le: /^(?:[\d.]+|\+Inf)$/,
}

/** A sidecar that has seen something of everything. */
const upstream = await recordingUpstream(t)
const sidecar = await startSidecar(t, {
  settings: {
    upstreams: JSON.stringify([
      { prefix: '/', url: upstream.url },
      { prefix: '/dead', url: 'http://127.0.0.1:1' },
    ]),
    'public-routes': '[{ "method": "GET", "path": "/public" }]',
    'limits-login-failures-count': '1',
  },
  credentials: [{ accountId: 'canary-account', accessKey: 'canary-key' }],
})
const good = sidecar.logins[0] ?? {}
const token = `Authorization: Bearer ${sidecar.token}\r\n`
for (const text of [
  post(good),
  post({ ...good, secret: 'canary' }),
  post(good),
  post({ canary: 1 }),
  `GET /v2/auth/token HTTP/1.1\r\nHost: a\r\n${token}\r\n`,
  `GET /canary HTTP/1.1\r\nHost: a\r\n${token}\r\n`,
  `GET /canary?canary HTTP/1.1\r\nHost: a\r\n${token}\r\n`,
  `PUT /canary HTTP/1.1\r\nHost: a\r\n${token}Content-Length: 5\r\n\r\nhello`,
  `PROPFIND /canary HTTP/1.1\r\nHost: a\r\n${token}\r\n`,
  `GET /canary HTTP/1.1\r\nHost: a\r\n${token}${token}\r\n`,
  'GET /canary HTTP/1.1\r\nHost: a\r\n\r\n',
  `GET /dead/canary HTTP/1.1\r\nHost: a\r\n${token}\r\n`,
  'GET /public HTTP/1.1\r\nHost: a\r\n\r\n',
  'canary\r\n\r\n',
]) {
  await rawRequest(t, sidecar.port, text)
}

t.test('the text is valid for Prometheus, with closed label sets and no client input', async (t) => {
  const { status, body } = await rawRequest(t, sidecar.adminPort, 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')
  t.equal(status, 200)
  const text = body.toString()
  for (const { name, labels } of parseMetrics(text)) {
    if (!name.startsWith('auth_sidecar_')) {
      continue
    }
    for (const [label, value] of Object.entries(labels)) {
      const allowed = LABELS[`${name} ${label}`] ?? LABELS[label] ?? []
      t.ok(allowed instanceof RegExp ? allowed.test(value) : allowed.includes(value), `${name} ${label}`)
    }
  }
  t.notMatch(text, /canary/)
  for (const part of sidecar.token.split('.')) {
    t.notOk(text.includes(part))
  }
})

t.test('each request is counted once, under its outcome', async (t) => {
  for (const [series, value] of [
    ['auth_sidecar_requests_total{route="token_issue",method="POST",status="200"}', 1],
    ['auth_sidecar_requests_total{route="token_issue",method="POST",status="403"}', 1],
    ['auth_sidecar_requests_total{route="token_issue",method="POST",status="503"}', 1],
    ['auth_sidecar_requests_total{route="token_issue",method="POST",status="400"}', 1],
    ['auth_sidecar_requests_total{route="token_check",method="GET",status="200"}', 1],
    ['auth_sidecar_requests_total{route="proxy",method="GET",status="200"}', 2],
    ['auth_sidecar_requests_total{route="proxy",method="PUT",status="200"}', 1],
    ['auth_sidecar_requests_total{route="proxy",method="other",status="200"}', 1],
    ['auth_sidecar_requests_total{route="proxy",method="GET",status="400"}', 2],
    ['auth_sidecar_requests_total{route="proxy",method="other",status="400"}', 1],
    ['auth_sidecar_requests_total{route="proxy",method="GET",status="503"}', 1],
    ['auth_sidecar_requests_total{route="public",method="GET",status="200"}', 1],
    ['auth_sidecar_request_duration_seconds_count{route="proxy"}', 8],
    ['auth_sidecar_requests_in_flight', 0],
    ['auth_sidecar_token_checks_total{result="accepted",reason="ok"}', 6],
    ['auth_sidecar_token_checks_total{result="rejected",reason="malformed"}', 1],
    ['auth_sidecar_token_checks_total{result="rejected",reason="missing"}', 1],
    ['auth_sidecar_tokens_issued_total', 1],
    ['auth_sidecar_token_issue_failures_total{reason="rejected"}', 1],
    ['auth_sidecar_token_issue_failures_total{reason="throttled"}', 1],
    ['auth_sidecar_token_issue_failures_total{reason="invalid"}', 1],
    ['auth_sidecar_token_cache_misses_total', 1],
    ['auth_sidecar_token_cache_hits_total', 5],
    ['auth_sidecar_token_cache_entries', 1],
    ['auth_sidecar_upstream_requests_total{upstream="/",outcome="ok"}', 5],
    ['auth_sidecar_upstream_requests_total{upstream="/dead",outcome="connection_refused"}', 1],
    ['auth_sidecar_upstream_responses_total{upstream="/",class="2xx"}', 5],
    ['auth_sidecar_upstream_responses_total{upstream="/dead",class="5xx"}', 0],
    ['auth_sidecar_upstream_response_seconds_count{upstream="/"}', 5],
    ['auth_sidecar_upstream_queue{upstream="/"}', 0],
    ['auth_sidecar_upstream_connections{upstream="/dead"}', 0],
    ['auth_sidecar_ready', 1],
  ] as const) {
    await eventually(async () => (await sidecar.metric(series)) === value, `${series} to be ${value}`)
    t.pass(series)
  }
  await eventually(async () => {
    await rawRequest(t, sidecar.port, `GET /again HTTP/1.1\r\nHost: a\r\n${token}\r\n`)
    return (await sidecar.metric('auth_sidecar_upstream_connections{upstream="/"}')) >= 1
  }, 'an unused connection')
  t.ok((await sidecar.metric('auth_sidecar_transferred_bytes_total{direction="in"}')) >= 5)
})

const ENDINGS: Readonly<Record<string, (tcp: Socket, socket: Socket) => void>> = {
  'a reset': (tcp) => {
    tcp.resetAndDestroy()
  },
  'a close': (_, socket) => {
    socket.destroy()
  },
  'a half-close': (_, socket) => {
    socket.end()
  },
  'further bytes and a reset': (tcp, socket) => {
    socket.write('more', () => tcp.resetAndDestroy())
  },
}

/** Requests whose response is complete while a body is missing, and others. */
const REQUESTS: Readonly<Record<string, readonly [request: string, status: number]>> = {
  'no token': ['GET /b HTTP/1.1\r\nHost: h\r\n\r\n', 400],
  'an upload without a token': ['PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n', 400],
  'one in chunks': ['PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n', 400],
  admission: ['PUT /b HTTP/1.1\r\nHost: a,b\r\nContent-Length: 10\r\n\r\n', 400],
  'too large a login': ['POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 99999\r\n\r\n', 400],
  'a login without a body': ['POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n', 400],
  'another method': ['PUT /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n', 405],
  'another expectation': ['PUT /b HTTP/1.1\r\nHost: h\r\nExpect: x\r\nContent-Length: 10\r\n\r\n', 417],
  CONNECT: ['CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n', 400],
  'no HTTP': ['BAD\r\n\r\n', 400],
  'an early response': ['PUT /early HTTP/1.1\r\nHost: h\r\nAUTHContent-Length: 10\r\n\r\n1', 403],
}

/** Requests by status. */
async function counts(sidecar: TestSidecar): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/metrics`)).text()
  const byStatus: Record<string, number> = {}
  for (const [, status = '', count] of text.matchAll(
    /^auth_sidecar_requests_total\{.*status="(\d+)"\} (\d+)$/gm,
  )) {
    byStatus[status] = (byStatus[status] ?? 0) + Number(count)
  }
  return byStatus
}

/** Such as `400: 1`. */
function increases(before: Record<string, number>, after: Record<string, number>): string[] {
  return Object.entries(after).flatMap(([status, count]) => {
    const more = count - (before[status] ?? 0)
    return more === 0 ? [] : [`${status}: ${more}`]
  })
}

/** Responds once to a request whose head has arrived, but not its body. */
function answerEarly({ bytes, sockets }: Pick<Setup['upstream'], 'bytes' | 'sockets'>): void {
  const last = bytes.at(-1)
  if (last?.includes('/early') === true && !last.includes('answered')) {
    bytes[bytes.length - 1] = Buffer.from('answered')
    sockets.at(-1)?.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
  }
}

async function countsOnce(t: Test, isTls: boolean): Promise<void> {
  const setup = await (isTls ? startSecured(t) : startSetup(t))
  setup.upstream.sockets.length = 0
  for (const what of Object.keys(REQUESTS)) {
    for (const ending of Object.keys(ENDINGS)) {
      await countsRequestOnce(t, setup, { isTls, what, ending })
    }
  }
}

async function countsRequestOnce(
  t: Test,
  { upstream, sidecar, authorization }: Pick<Setup, 'upstream' | 'sidecar' | 'authorization'>,
  { isTls, what, ending }: { readonly isTls: boolean; readonly what: string; readonly ending: string },
): Promise<void> {
  const [text = '', status] = REQUESTS[what] ?? []
  const before = await counts(sidecar)
  const tcp = connect(sidecar.port, '127.0.0.1')
  const socket = isTls ? connectTls({ socket: tcp, rejectUnauthorized: false }) : tcp
  tcp.on('error', () => {})
  socket.on('error', () => {})
  let received = ''
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1')
  })
  socket.write(text.replace('AUTH', authorization))
  if (what.startsWith('an early')) {
    await eventually(() => {
      answerEarly(upstream)
      return received !== ''
    }, 'the early response')
  }
  await eventually(() => /\r\n\r\n(?:.*[}o])$/s.test(received), `the response: ${what}`)
  ENDINGS[ending]?.(tcp, socket)
  const added = async () => increases(before, await counts(sidecar))
  await eventually(async () => (await added()).length > 0, `a count: ${what}, ${ending}`)
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_client_connections')) === 0,
    'the end of the connection',
  )
  // On a connection that is kept, further bytes are another request.
  const isKept = what === 'no token' || what === 'a login without a body'
  const count = isKept && ending.startsWith('further') ? 2 : 1
  t.same(await added(), [`${status}: ${count}`], `${what}, ${ending}`)
  socket.destroy()
}

t.test('over TCP', (t) => countsOnce(t, false))
t.test('over TLS', (t) => countsOnce(t, true))
