import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'
import { startSetup } from '../support/setup.ts'

const COUNT = 'auth_sidecar_client_connections'

t.test('above the limit of connections, the one that has been idle longest makes room', async (t) => {
  const { upstream, sidecar, connect, head } = await startSetup(t, {
    settings: { 'limits-connections': '4' },
  })
  const busy = await connect()
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf')
  busy.send(head('GET /busy'))
  await busy.until('half')
  const begun = await connect()
  begun.send('GET / HT')
  const used = await connect()
  const silent = await connect()
  await eventually(async () => (await sidecar.metric(COUNT)) === 4, 'all to be accepted')
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  used.send(head('GET /used'))
  t.equal((await used.response()).status, 200)

  const first = await connect()
  t.equal(await silent.closed(), 'end', 'it has sent nothing for longer than the other one')
  first.send(head('GET /first'))
  t.equal((await first.response()).status, 200)
  const second = await connect()
  t.equal(await used.closed(), 'end')
  second.send(head('GET /second'))
  t.equal((await second.response()).status, 200)
  t.equal(await sidecar.metric(`${COUNT}_evicted_total`), 2)
  t.equal(await sidecar.metric(`${COUNT}_dropped_total`), 0)

  for (const client of [first, second]) {
    client.send('GET / HT')
  }
  await eventually(async () => {
    const client = await connect()
    const end = await Promise.race([client.closed(), new Promise((resolve) => setTimeout(resolve, 200))])
    client.socket.destroy()
    return end !== undefined
  }, 'a new connection to be closed, because none is idle')
  t.ok((await sidecar.metric(`${COUNT}_dropped_total`)) > 0)
  t.notOk(busy.socket.readableEnded, 'a transfer goes on')
})

t.test('a client that was evicted before is no obstacle, however often connections are opened', async (t) => {
  const { connect, head } = await startSetup(t, { settings: { 'limits-connections': '3' } })
  for (let at = 0; at < 30; at++) {
    const client = await connect()
    client.send(head('GET /o'))
    t.equal((await client.response()).status, 200)
  }
})

t.test('the connections of one address can be limited', async (t) => {
  const settings = { 'limits-connections-per-address': '2' }
  const { sidecar, connect, head } = await startSetup(t, { settings })
  const one = await connect()
  await connect()
  await eventually(async () => (await sidecar.metric(COUNT)) === 2, 'both to be accepted')
  const third = await connect()
  await third.closed()
  t.equal(await sidecar.metric(`${COUNT}_dropped_by_address_total`), 1)
  const other = await rawClient(t, sidecar.port, '127.0.0.1', '127.0.0.2')
  other.send(head('GET /o'))
  t.equal((await other.response()).status, 200, 'another address is served')
  one.socket.destroy()
  await eventually(async () => (await sidecar.metric(COUNT)) === 2, 'the first one to be closed')
  const next = await connect()
  next.send(head('GET /o'))
  t.equal((await next.response()).status, 200)
})

t.test('a trusted proxy may open more connections than other addresses', async (t) => {
  const settings = { 'limits-connections-per-address': '1', 'forwarded-trust': '127.0.0.0/8' }
  const { connect, head } = await startSetup(t, { settings })
  for (let at = 0; at < 3; at++) {
    const client = await connect()
    client.send(head('GET /o'))
    t.equal((await client.response()).status, 200)
  }
})

t.test('a client that sends on after its last response makes room, too', async (t) => {
  const { sidecar, connect, head } = await startSetup(t, { settings: { 'limits-connections': '2' } })
  const refusedUpload = 'PUT /o HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n'
  for (const refused of [refusedUpload, 'no request\r\n\r\n']) {
    for (let at = 0; at < 2; at++) {
      const stranger = await connect()
      stranger.send(refused)
      t.equal((await stranger.response()).status, 400)
      stranger.send('x')
    }
    const client = await connect()
    client.send(head('GET /o'))
    t.equal((await client.response()).status, 200)
  }
  t.equal(await sidecar.metric(`${COUNT}_dropped_total`), 0)
})
