/**
 * Requests of a pipeline that the upstream has been sent already are answered before we stop.
 *
 * @module
 */
import t from 'tap'
import { startScene } from '../support/scene.ts'

t.test('every request that was started is answered when the sidecar stops', async (t) => {
  const scene = await startScene(t, {
    settings: { 'shutdown-lame-duck-seconds': '1', 'shutdown-deadline-seconds': '5' },
  })
  scene.upstream.reply((socket) => {
    setTimeout(() => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'), 500)
  })
  const client = await scene.connect()
  client.send(`${scene.head('PUT /a', 'Content-Length: 1')}x`.repeat(4))
  await scene.upstream.received(4)
  const stopped = scene.sidecar.stop()
  await client.closed()
  await stopped
  const answers =
    client
      .received()
      .toString('latin1')
      .match(/HTTP\/1\.1 200 /g) ?? []
  t.equal(answers.length, 4, 'the upstream has carried out four requests: the client is told of each')
})
