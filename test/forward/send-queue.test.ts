import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import t from 'tap'
import { createSendQueue } from '../../src/forward/send-queue.ts'

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode'

/** A table with one socket in it. */
const table = (local: string, remote: string, queue: string, unread = '00000010') =>
  `${HEAD}\n   7: ${local} ${remote} 01 ${queue}:${unread} 01:00000018 00000000     0        0 12345 1 0\n`

const socket = (
  localPort?: number,
  remoteAddress?: string,
  remotePort?: number,
  localAddress = '127.0.0.1',
) => ({ localAddress, localPort, remoteAddress, remotePort }) as Socket

t.test(
  'finds the length of the send queue of the very socket, in hexadecimal and whatever its family',
  async (t) => {
    const tables: Record<string, string> = {
      '/proc/net/tcp': table('0100007F:1F90', '0502000A:C350', '0000ABCD'),
      '/proc/net/tcp6': table(
        '00000000000000000000000001000000:1F90',
        'B80D0120000000000000000001000000:C351',
        '00000007',
      ),
    }
    const queue = createSendQueue({ readTable: async (path) => tables[path] ?? '', monotonicNow: () => 0 })
    t.equal(await queue(socket(8080, '10.0.2.5', 50000)), 0xabcd)
    t.equal(await queue(socket(8080, '2001:db8::1', 50001)), 7)
    t.equal(await queue(socket(8080, '2001:db8::1%eth0', 50001)), 7, 'a zone is no part of the address')
    t.equal(await queue(socket(8080, '10.0.2.6', 50000)), undefined, 'another client')
    t.equal(await queue(socket(8081, '10.0.2.5', 50000)), undefined, 'another listener')
  },
)

t.test(
  'counts what a peer on this machine was sent and has not read, in whatever family it is told',
  async (t) => {
    const ours = table('0100007F:1F90', '0100007F:C350', '00000005')
    for (const theirs of [
      table('0100007F:C350', '0100007F:1F90', '0000FFFF', '00000003'),
      table(
        '0000000000000000FFFF00000100007F:C350',
        '0000000000000000FFFF00000100007F:1F90',
        '0000FFFF',
        '00000003',
      ),
    ]) {
      const tables: Record<string, string> = { '/proc/net/tcp': ours, '/proc/net/tcp6': theirs }
      const queue = createSendQueue({ readTable: async (path) => tables[path] ?? '', monotonicNow: () => 0 })
      t.equal(await queue(socket(8080, '127.0.0.1', 50000)), 8)
      t.equal(await queue(socket(8080, '::ffff:127.0.0.1', 50000, '::ffff:127.0.0.1')), 8)
    }
  },
)

t.test('says that nothing is known of a socket that is not connected, or without tables', async (t) => {
  const queue = createSendQueue({
    readTable: () => Promise.reject(new Error('ENOENT')),
    monotonicNow: () => 0,
  })
  t.equal(await queue(socket(8080, '10.0.2.5', 50000)), undefined)
  const closed = { localPort: 1, remoteAddress: '10.0.2.5', remotePort: 2 } as Socket
  for (const unconnected of [closed, socket(), socket(1), socket(1, '10.0.2.5')]) {
    t.equal(await queue(unconnected), undefined)
  }
})

t.test('reads the tables once for everybody who asks at about the same time', async (t) => {
  let now = 0
  let reads = 0
  const queue = createSendQueue({
    readTable: async (path) => {
      reads++
      return path === '/proc/net/tcp' ? table('0100007F:0001', '0100007F:0002', reads.toString(16)) : ''
    },
    monotonicNow: () => now,
  })
  const one = socket(1, '127.0.0.1', 2)
  t.same(await Promise.all([queue(one), queue(one)]), [1, 1])
  now = 201
  t.equal(await queue(one), 3)
})

t.test(
  'sees a real queue grow and drain',
  { skip: process.platform !== 'linux' && 'needs /proc/net/tcp' },
  async (t) => {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const reader = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
    const [writer] = (await once(server, 'connection')) as [Socket]
    t.teardown(() => {
      reader.destroy()
      writer.destroy()
      server.close()
    })
    let now = 0
    const queue = createSendQueue({ monotonicNow: () => (now += 1000) })
    t.equal(await queue(writer), 0)
    writer.write(Buffer.alloc(16 * 1024 * 1024))
    let length = await queue(writer)
    while (length === 0) length = await queue(writer)
    t.ok(length !== undefined && length > 0)
    reader.resume()
    while (length !== 0) length = await queue(writer)
  },
)
