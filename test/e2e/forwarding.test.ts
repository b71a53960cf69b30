import t from 'tap'
import { rawClient } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

t.test('what the client sent arrives unchanged but for the identity', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  const client = await rawClient(t, sidecar.port)
  client.send(
    `PUT /b//c/%2e%2e/d;x=1?a=%20&b HTTP/1.1\r\nhOsT: storage.example:80\r\nX-Meta_Key: a\r\nAuthorization: Bearer ${sidecar.token}\r\n` +
      'x-dup: 1\r\nX-Dup: 2\r\nContent-length: 5\r\nX-Latin: caf\xe9\r\n\r\nhello',
  )
  const response = await client.response()
  t.equal(response.status, 200)
  t.same(response.body.toString(), 'ok')
  const [request] = upstream.requests
  t.equal(request?.target, '/b//c/%2e%2e/d;x=1?a=%20&b')
  t.same(request?.rawHeaders.slice(0, 12), [
    'hOsT',
    'storage.example:80',
    'X-Meta_Key',
    'a',
    'x-dup',
    '1',
    'X-Dup',
    '2',
    'Content-length',
    '5',
    'X-Latin',
    'caf\xe9',
  ])
  t.equal(request?.body.toString(), 'hello')
  t.equal(request?.headers['x-authenticated-account-id'], 'acme')
  t.equal(request?.headers['authorization'], undefined)
})
