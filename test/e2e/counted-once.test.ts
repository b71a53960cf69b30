/** Whatever a client does after a complete response, the request is counted once, with the status that was sent. */
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { startSecured } from '../support/secured.ts'
import { startSetup } from '../support/setup.ts'
import type { TestSidecar } from '../support/sidecar.ts'

const ENDINGS: Readonly<Record<string, (tcp: Socket, socket: Socket) => void>> = {
  'a reset': (tcp) => void tcp.resetAndDestroy(),
  'a close': (_, socket) => void socket.destroy(),
  'a half-close': (_, socket) => void socket.end(),
  'further bytes and a reset': (tcp, socket) => void socket.write('more', () => tcp.resetAndDestroy()),
}

/** Requests whose response is complete while a body is missing, and others. */
const REQUESTS: Readonly<Record<string, readonly [request: string, status: number]>> = {
  'no token': ['GET /b HTTP/1.1\r\nHost: h\r\n\r\n', 400],
  'an upload without a token': ['PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n', 400],
  'an upload in chunks': [
    'PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n',
    400,
  ],
  admission: ['PUT /b HTTP/1.1\r\nHost: a,b\r\nContent-Length: 10\r\n\r\n', 400],
  'a login that is too large': [
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 99999\r\n\r\n',
    400,
  ],
  'a login without a body': ['POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n', 400],
  'another method': ['PUT /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n', 405],
  'another expectation': ['PUT /b HTTP/1.1\r\nHost: h\r\nExpect: x\r\nContent-Length: 10\r\n\r\n', 417],
  CONNECT: ['CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n', 400],
  'no HTTP': ['BAD\r\n\r\n', 400],
  'an early response of the upstream': [
    'PUT /early HTTP/1.1\r\nHost: h\r\nAUTHContent-Length: 10\r\n\r\n1',
    403,
  ],
}

/** Requests by status. */
async function counts(sidecar: TestSidecar): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/metrics`)).text()
  const byStatus: Record<string, number> = {}
  for (const [, status = '', count] of text.matchAll(
    /^auth_sidecar_requests_total\{.*status="(\d+)"\} (\d+)$/gm,
  ))
    byStatus[status] = (byStatus[status] ?? 0) + Number(count)
  return byStatus
}

async function countsOnce(t: Test, isTls: boolean): Promise<void> {
  const { upstream, sidecar, authorization } = await (isTls ? startSecured(t) : startSetup(t))
  upstream.sockets.length = 0
  const early = 'HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno'
  for (const [what, [text, status]] of Object.entries(REQUESTS)) {
    for (const [ending, end] of Object.entries(ENDINGS)) {
      const before = await counts(sidecar)
      const tcp = connect(sidecar.port, '127.0.0.1')
      const socket = isTls ? connectTls({ socket: tcp, rejectUnauthorized: false }) : tcp
      for (const each of [tcp, socket]) each.on('error', () => {})
      let received = ''
      socket.on('data', (chunk) => {
        received += chunk.toString('latin1')
      })
      socket.write(text.replace('AUTH', authorization))
      if (what.startsWith('an early'))
        await eventually(() => {
          const last = upstream.bytes.at(-1)
          if (last?.includes('/early') === true && !last.includes('answered')) {
            upstream.bytes[upstream.bytes.length - 1] = Buffer.from('answered')
            upstream.sockets.at(-1)?.write(early)
          }
          return received !== ''
        }, 'the early response')
      await eventually(() => /\r\n\r\n(?:.*[}o])$/s.test(received), `the response: ${what}`)
      end(tcp, socket)
      const added = async () => {
        const after = await counts(sidecar)
        return Object.entries(after).flatMap(([code, count]) => {
          const more = count - (before[code] ?? 0)
          return more === 0 ? [] : [`${code}: ${more}`]
        })
      }
      await eventually(async () => (await added()).length > 0, `a count: ${what}, ${ending}`)
      await eventually(
        async () => (await sidecar.metric('auth_sidecar_client_connections')) === 0,
        'the end of the connection',
      )
      const isKept = what === 'no token' || what === 'a login without a body'
      const count = isKept && ending.startsWith('further') ? 2 : 1 // they are another request
      t.same(await added(), [`${status}: ${count}`], `${what}, ${ending}`)
      socket.destroy()
    }
  }
}

t.test('over TCP', (t) => countsOnce(t, false))
t.test('over TLS', (t) => countsOnce(t, true))
