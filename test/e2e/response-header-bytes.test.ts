import t from 'tap'
import { rawClient } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

const BYTES = 'X-Bytes: \xe4\xff\xc3\xa4'

t.test('bytes above ASCII in a response header arrive as they were, however the body comes', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  for (const [when, framing, body] of [
    ['with the head', 'Content-Length: 2', 'ok'],
    ['later', 'Content-Length: 2', ''],
    ['later, in chunks', 'Transfer-Encoding: chunked', ''],
    ['later, ended by the close', 'Connection: close', ''],
    ['not at all', 'Content-Length: 0', ''],
  ] as const) {
    upstream.reply(`HTTP/1.1 200 OK\r\n${BYTES}\r\n${framing}\r\n\r\n${body}`)
    const client = await rawClient(t, sidecar.port)
    client.send(`GET /a HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
    await client.until('\r\n\r\n')
    t.ok(client.received().includes(Buffer.from(`${BYTES}\r\n`, 'latin1')), `the body comes ${when}`)
    client.socket.destroy()
  }
})
