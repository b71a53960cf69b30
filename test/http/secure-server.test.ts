import { once } from 'node:events'
import { type ConnectionOptions, connect } from 'node:tls'
import t, { type Test } from 'tap'
import type { Exchange } from '../../src/http/exchange.ts'
import type { ListenerOptions } from '../../src/http/listener.ts'
import { resetConnection } from '../../src/http/secure-server.ts'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, startListening } from '../support/listening.ts'
import { rawClient, rawTlsClient } from '../support/raw-client.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const answer = (exchange: Exchange) => answerWith(exchange, 'ok')

/** Key and certificate as a server is given them. */
function pair(commonName: string) {
  const { cert, key } = makeCertificate({ commonName, names: ['localhost'] })
  return { cert: Buffer.from(cert), key: Buffer.from(key) }
}

/** A listener with TLS, and why handshakes failed on it. */
async function listening(t: Test, options: Partial<ListenerOptions> = {}) {
  const failed: (string | undefined)[] = []
  const certificates = pair('first')
  const { listener, port } = await startListening(t, answer, {
    certificates,
    onHandshakeFailed: (code) => void failed.push(code),
    ...options,
  })
  const tls = (more?: ConnectionOptions) => rawTlsClient(t, port, { rejectUnauthorized: false, ...more })
  return { listener, port, failed, tls }
}

t.test('each handshake that fails is told once, with its reason', async (t) => {
  const { listener, port, failed, tls } = await listening(t, {
    timeouts: { headersSeconds: 0.2, keepAliveSeconds: 75 },
  })
  await t.rejects(tls({ ALPNProtocols: ['h2'] }))
  const plain = await rawClient(t, port)
  plain.send('GET / HTTP/1.1\r\n\r\n')
  await plain.closed()
  const gone = await rawClient(t, port)
  gone.socket.end()
  await gone.closed()
  const silent = await rawClient(t, port)
  await silent.closed()
  t.strictSame(failed, [
    'ERR_SSL_NO_APPLICATION_PROTOCOL',
    'ERR_SSL_HTTP_REQUEST',
    'ECONNRESET',
    'ERR_TLS_HANDSHAKE_TIMEOUT',
  ])
  await eventually(() => listener.connections === 0, 'nothing to be left')
})

t.test('a failed handshake need not be told to anybody', async (t) => {
  const { port } = await startListening(t, answer, { certificates: pair('first') })
  const client = await rawClient(t, port)
  client.send('GET / HTTP/1.1\r\n\r\n')
  await client.closed()
})

t.test('TLS that breaks after the handshake is no request', async (t) => {
  const refused: number[] = []
  const { listener, failed, tls } = await listening(t, {
    onRefused: ({ status }) => void refused.push(status),
  })
  const { socket } = await tls({ maxVersion: 'TLSv1.2' })
  const error = once(socket, 'error')
  socket.renegotiate({}, () => {}) // ends with an alert from this side
  await error
  await eventually(() => listener.connections === 0, 'the connection to be closed')
  t.strictSame([...failed, ...refused], [])
})

t.test('a connection is known from its first byte to its end', async (t) => {
  const { listener, port, tls } = await listening(t)
  const raw = await rawClient(t, port)
  await eventually(() => listener.connections === 1, 'the handshake to be known')
  const client = await tls()
  client.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  await client.response()
  t.equal(listener.connections, 2)
  raw.socket.destroy()
  client.socket.destroy()
  await eventually(() => listener.connections === 0, 'both to be gone')
})

t.test('handshakes are given a moment before they are closed as unused', async (t) => {
  const deadlines = setDeadlines(t)
  const { listener, port } = await listening(t, { deadlines })
  const raw = await rawClient(t, port)
  await eventually(() => listener.connections === 1, 'the handshake to be known')
  listener.closeUnused()
  t.equal(listener.connections, 1)
  deadlines.advance(1000)
  listener.closeUnused()
  await raw.closed()
})

t.test('other certificates are for connections that begin afterwards', async (t) => {
  const { listener, port } = await listening(t)
  const subject = async () => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    t.teardown(() => socket.destroy())
    return String(socket.getPeerCertificate().subject.CN)
  }
  t.equal(await subject(), 'first')
  listener.renew(pair('second'))
  t.equal(await subject(), 'second')
  const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
  await t.rejects(rawTlsClient(t, port, { rejectUnauthorized: false, ...old }), { code: /PROTOCOL_VERSION/ })
})

t.test('a listener without TLS has none to renew', async (t) => {
  const { listener, connect: plain } = await startListening(t, answer)
  listener.renew(pair('second'))
  const client = await plain()
  client.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  t.equal((await client.response()).status, 200)
})

t.test('a connection can be reset, with TLS or without', async (t) => {
  const reset = ({ connection }: Exchange) => resetConnection(connection.socket)
  const request = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
  const plain = await (await startListening(t, reset)).connect()
  plain.send(request)
  t.equal(await plain.closed(), 'reset')
  const { port, listener } = await startListening(t, reset, { certificates: pair('first') })
  const secure = await rawTlsClient(t, port, { rejectUnauthorized: false })
  secure.send(request)
  t.equal(await secure.closed(), 'reset')
  await eventually(() => listener.connections === 0, 'it to be forgotten')
})
