import { createServer } from 'node:net'
import t from 'tap'
import { listenOn } from '../../src/http/listen-on.ts'

t.test('it says where it listens, and tells later faults to whoever wants to know', async (t) => {
  const server = createServer()
  t.teardown(() => server.close())
  const faults: Error[] = []
  const onFault = (error: Error) => void faults.push(error)
  const { address, port } = await listenOn(server, { host: '127.0.0.1', port: 0, onFault })
  t.equal(address, '127.0.0.1')
  const fault = new Error('no descriptor is left')
  server.emit('error', fault)
  t.same(faults, [fault])

  const second = createServer()
  await t.rejects(listenOn(second, { host: '127.0.0.1', port, onFault }), { code: 'EADDRINUSE' })
  t.same(faults, [fault], 'an address that cannot be had is for the caller alone')
})
