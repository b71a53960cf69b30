import { connect, createServer, type Socket } from 'node:net'
import t from 'tap'
import { OwnConnections } from '../../src/upstream/own-connections.ts'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'

t.test('a connection of this process is recognised at its other end, until it is closed', async (t) => {
  const accepted: Socket[] = []
  const server = createServer((socket) => {
    accepted.push(socket)
  })
  const port = await listen(t, server)
  const own = new OwnConnections()
  const connectTo = async () => {
    const socket = connect(port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    await new Promise((resolve) => socket.once('connect', resolve))
    return socket
  }
  const mine = await connectTo()
  own.add(mine)
  await connectTo()
  await eventually(() => accepted.length === 2, 'both connections')
  t.same(
    accepted.map((socket) => own.has(socket)),
    [true, false],
  )
  const [ends] = accepted
  if (ends === undefined) {
    throw new Error('no connection')
  }
  const { localAddress, localPort, remoteAddress, remotePort } = ends
  const same = { localAddress, localPort, remoteAddress, remotePort }
  t.ok(own.has({ ...same, localAddress: `::ffff:${localAddress}`, remoteAddress: `::ffff:${remoteAddress}` }))
  t.notOk(own.has({ ...same, localPort: 1 }), 'the same port of ours, to another server')
  t.notOk(own.has({ ...same, localAddress: '127.0.0.9' }))
  t.notOk(own.has({ ...same, remoteAddress: '127.0.0.9' }))
  mine.destroy()
  await eventually(() => !own.has(same), 'the closed connection to be forgotten')
})
