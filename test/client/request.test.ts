/** How the body of a request is read: chunks of a byte must not cost an object each. */
import { once } from 'node:events'
import { createServer, ServerResponse } from 'node:http'
import { connect } from 'node:net'
import t from 'tap'
import { SidecarRequest } from '../../src/client/request.ts'
import { listen } from '../support/listen.ts'

t.test('small chunks of a body are copied together, also while it is not read', async (t) => {
  const server = createServer({
    IncomingMessage: SidecarRequest,
    ServerResponse: ServerResponse<SidecarRequest>,
  })
  const port = await listen(t, server)
  for (const { count, isReadLate } of [
    { count: 20_000, isReadLate: true },
    { count: 20_000, isReadLate: false },
    { count: 1, isReadLate: false },
  ]) {
    const client = connect(port)
    const chunks = Array.from({ length: count }, (_, at) => `1\r\n${at % 10}\r\n`).join('')
    client.write(`PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`)
    const [req] = (await once(server, 'request')) as [SidecarRequest]
    while (isReadLate && req.readableLength === 0) {
      await new Promise(setImmediate)
    }
    const received: string[] = []
    req.on('data', (chunk: Buffer) => received.push(chunk.toString()))
    client.write('5000\r\n')
    client.write(`${'x'.repeat(0x5000)}\r\n0\r\n\r\n`)
    await once(req, 'end')
    const digits = '0123456789'.repeat(2000).slice(0, count)
    t.equal(received.join(''), `${digits}${'x'.repeat(0x5000)}`)
    t.ok(received.length < 100, `${received.length} chunks of ${count}`)
    client.destroy()
  }
})
