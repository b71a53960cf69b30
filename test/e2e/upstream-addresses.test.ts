/** Upstreams with several addresses, with changing ones, and an upstream that is the sidecar itself. */
import dns from 'node:dns/promises'
import { createServer } from 'node:net'
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { isOwnResponse, unavailable } from '../support/own-response.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { outcomes } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'

const NAME = 'storage.example'

/** Has the name resolve to what `addresses` then returns. */
function resolveTo(t: Test, addresses: () => readonly string[]) {
  mock.method(dns, 'lookup', async () => addresses().map((address) => ({ address, family: 4 })))
  t.teardown(() => mock.restoreAll())
}

/** A server that responds with its own address. */
async function serverAt(t: Test, host: string, port: number) {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${host.length}\r\n\r\n${host}`)
    })
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  t.teardown(() => server.close())
}

const get = (token: string) => `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`

t.test('an address that refuses leads to the next', async (t) => {
  const port = await freePort()
  await serverAt(t, '127.0.0.3', port)
  resolveTo(t, () => ['127.0.0.1', '127.0.0.2', '127.0.0.3'])
  const sidecar = await startSidecar(t, { upstreamUrl: `http://${NAME}:${port}` })
  const response = await rawRequest(t, sidecar.port, get(sidecar.token))
  t.equal(response.body.toString(), '127.0.0.3')
})

t.test('with every address refused, the request is a 503', async (t) => {
  const port = await freePort()
  resolveTo(t, () => ['127.0.0.1', '127.0.0.2'])
  const sidecar = await startSidecar(t, { upstreamUrl: `http://${NAME}:${port}` })
  const response = await rawRequest(t, sidecar.port, get(sidecar.token))
  isOwnResponse(t, response, unavailable('connection_refused'))
})

t.test('a changed DNS answer is followed under traffic', async (t) => {
  const port = await freePort()
  await serverAt(t, '127.0.0.1', port)
  await serverAt(t, '127.0.0.2', port)
  let address = '127.0.0.1'
  resolveTo(t, () => [address])
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://${NAME}:${port}`,
    settings: { 'timeouts-upstream-max-age-seconds': '0.5' },
  })
  const client = await rawClient(t, sidecar.port)
  const ask = async () => {
    client.send(get(sidecar.token))
    return (await client.response()).body.toString()
  }
  t.equal(await ask(), '127.0.0.1')
  address = '127.0.0.2'
  await eventually(async () => (await ask()) === '127.0.0.2', 'the other address to be used')
})

t.test('an upstream that leads back to the sidecar ends at once', async (t) => {
  const port = await freePort()
  resolveTo(t, () => ['127.0.0.1'])
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://${NAME}:${port}`,
    settings: { 'listen-port': String(port), 'identity-forward-authorization': 'true' },
  })
  const response = await rawRequest(t, sidecar.port, get(sidecar.token))
  t.match(response, {
    status: 503,
    headers: { 'proxy-status': 'storage-auth-sidecar; error=proxy_loop_detected' },
  })
  t.equal(await outcomes(sidecar, 'proxy_loop_detected'), 1)
  const requests = sidecar.log.filter(({ msg }) => msg === 'request')
  t.equal(requests.length, 2, 'the request of the client, and the first of the sidecar to itself')
})
