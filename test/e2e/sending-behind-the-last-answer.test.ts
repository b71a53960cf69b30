import t from 'tap'
import { rawClient } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

t.test(
  'what is still sent behind a refused request is read for a moment, so that answers arrive',
  async (t) => {
    const upstream = await recordingUpstream(t)
    const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
    const head = `Host: s\r\nAuthorization: Bearer ${sidecar.token}\r\n`
    for (const [name, refused] of [
      ['a look-alike, and no body', `GET /b HTTP/1.1\r\n${head}Authorization_: x\r\n\r\n`],
      ['two hosts, and a whole body', `PUT /b HTTP/1.1\r\n${head}Host: s\r\nContent-Length: 2\r\n\r\nok`],
      ['an upgrade', `GET /b HTTP/1.1\r\n${head}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n`],
      ['a part of a body', `PUT * HTTP/1.1\r\n${head}Content-Length: 40\r\n\r\npart`],
      ['garbage behind a body', `PUT * HTTP/1.1\r\n${head}Content-Length: 2\r\n\r\nok\0\0\0`],
      ['garbage alone', 'GET /b\x01 HTTP/1.1\r\n\r\n'],
    ] as const) {
      for (const before of ['', `GET /a HTTP/1.1\r\n${head}\r\n`]) {
        const client = await rawClient(t, sidecar.port)
        client.send(before + refused)
        if (before !== '') t.equal((await client.response()).status, 200)
        t.equal((await client.response()).status, 400, name)
        t.equal(await client.closed(), 'end')
        const errors: Error[] = []
        client.socket.on('error', (error) => errors.push(error))
        for (const piece of ['more', '\r\n\r\n', `PUT /c HTTP/1.1\r\n${head}Content-Length: 9\r\n\r\n`]) {
          client.send(piece)
          await new Promise((resolve) => setTimeout(resolve, 10)) // a reset in answer to a write fails the next one
        }
        t.strictSame(errors, [])
        client.socket.end()
      }
    }
    t.ok(upstream.requests.every(({ target }) => target === '/a'))
  },
)

t.test(
  'what is sent behind a request that was answered early does not cost the client its answer',
  async (t) => {
    const upstream = await recordingUpstream(t, {
      onConnection: (socket) => {
        socket.once('data', () => socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nta'))
        socket.on('data', (chunk) => {
          if (chunk.includes('end')) socket.write('il')
        })
      },
      read: false,
    })
    const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
    const client = await rawClient(t, sidecar.port)
    const head = `Host: s\r\nAuthorization: Bearer ${sidecar.token}\r\n`
    client.send(`PUT /a HTTP/1.1\r\n${head}Content-Length: 5\r\n\r\nx`)
    await client.until('ta')
    client.send(`xend${`GET /b HTTP/1.1\r\n${head}\r\n`.repeat(3)}`)
    t.equal((await client.response()).body.toString(), 'tail')
    t.equal(await client.closed(), 'end')
    const errors: Error[] = []
    client.socket.on('error', (error) => errors.push(error))
    for (let writes = 0; writes < 3; writes++) {
      client.send(`GET /b HTTP/1.1\r\n${head}\r\n`)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    t.strictSame(errors, [])
  },
)
