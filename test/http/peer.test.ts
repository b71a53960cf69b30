import fc from 'fast-check'
import t from 'tap'
import { createClientAddress, createPeers, type Peer, type PeerFacts } from '../../src/http/peer.ts'

/** A peer by its address, connected without TLS to port 8080. */
function peer(
  remoteAddress: string | undefined,
  trust: readonly string[] = [],
  facts: Partial<PeerFacts> = {},
): Peer {
  return createPeers(trust)({ remoteAddress, localPort: 8080, tls: false, ...facts })
}

t.test('a port that is not known is the usual one', async (t) => {
  t.match(peer('192.0.2.7', [], { localPort: undefined }).lines, 'X-Forwarded-Port: 80\r\n')
  t.match(peer('192.0.2.7', [], { localPort: undefined, tls: true }).lines, 'X-Forwarded-Port: 443\r\n')
})

t.test('an address is told in one spelling', async (t) => {
  for (const [remoteAddress, address, node] of [
    ['192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['::ffff:c000:207', '192.0.2.7', '192.0.2.7'],
    ['2001:db8::1', '2001:db8::1', '"[2001:db8::1]"'],
    ['2001:0DB8:0:0:0:0:0:1', '2001:db8::1', '"[2001:db8::1]"'],
    ['::1', '::1', '"[::1]"'],
    ['fe80::1%eth0', 'fe80::1', '"[fe80::1]"'],
    ['', 'unknown', 'unknown'],
    [undefined, 'unknown', 'unknown'],
  ] as const) {
    const { address: told, forwarded, lines } = peer(remoteAddress)
    t.equal(told, address)
    t.equal(forwarded, `Forwarded: for=${node};proto=http`)
    t.match(lines, `X-Forwarded-For: ${address}\r\n`)
  }
})

t.test('a peer is trusted if the list has its address or its network', async (t) => {
  const table: readonly [remoteAddress: string | undefined, trust: readonly string[], trusted: boolean][] = [
    ['10.1.2.3', [], false],
    ['10.1.2.3', ['10.0.0.0/8'], true],
    ['11.1.2.3', ['10.0.0.0/8'], false],
    ['9.255.255.255', ['10.0.0.0/8'], false],
    ['10.1.2.3', ['10.1.2.3'], true],
    ['10.1.2.4', ['10.1.2.3'], false],
    ['10.1.2.4', ['10.1.2.3', '192.0.2.0/24', '10.1.2.4/32'], true],
    ['10.1.2.3', ['10.9.9.9/8'], true],
    ['10.1.2.3', ['0.0.0.0/0'], true],
    ['::ffff:10.1.2.3', ['10.0.0.0/8'], true],
    ['10.1.2.3', ['::ffff:10.0.0.0/104'], true],
    ['11.1.2.3', ['::ffff:10.0.0.0/104'], false],
    ['10.1.2.3', ['::ffff:10.1.2.3'], true],
    ['10.1.2.4', ['::ffff:10.1.2.3'], false],
    ['10.1.2.3', ['::/0'], false],
    ['2001:db8::1', ['::/0'], true],
    ['2001:db8::1', ['0.0.0.0/0'], false],
    ['fd00::1', ['fd00::/8'], true],
    ['fc00::1', ['fd00::/8'], false],
    ['::1', ['::1'], true],
    ['::2', ['::1'], false],
    ['0:0:0:0:0:0:0:1', ['::1'], true],
    ['fe80::1%eth0', ['fe80::/10'], true],
    [undefined, ['0.0.0.0/0', '::/0'], false],
    ['', ['0.0.0.0/0', '::/0'], false],
  ]
  for (const [remoteAddress, trust, trusted] of table)
    t.equal(peer(remoteAddress, trust).trusted, trusted, `${remoteAddress} in ${trust.join(' ')}`)
})

t.test('a list of anything else is an error at once', async (t) => {
  for (const entry of [
    '',
    'localhost',
    '10.0.0.0/33',
    '10.0.0.0/',
    'fd00::/129',
    '10.0.0.256',
    '10.0.0.0/8/8',
  ]) {
    t.throws(() => createPeers([entry]), entry)
    t.throws(() => createClientAddress(['10.0.0.0/8', entry]), entry)
  }
})

t.test('the address of the client is what trusted proxies say', async (t) => {
  const trust = ['10.0.0.0/8', 'fd00::/8', '::1']
  const clientAddress = createClientAddress(trust)
  const from = (remoteAddress: string, ...lists: string[]) => clientAddress(peer(remoteAddress, trust), lists)

  t.test('it is that of the connection, where its peer is not trusted', async (t) => {
    t.equal(from('192.0.2.7'), '192.0.2.7')
    t.equal(from('192.0.2.7', '198.51.100.1'), '192.0.2.7')
    t.equal(from('192.0.2.7', '10.0.0.1, 10.0.0.2'), '192.0.2.7')
    t.equal(from('2001:db8::7', '198.51.100.1'), '2001:db8::7')
  })

  t.test('it is the nearest that is not a trusted proxy', async (t) => {
    t.equal(from('10.0.0.1', '198.51.100.1'), '198.51.100.1')
    t.equal(from('10.0.0.1', '198.51.100.1, 10.0.0.2'), '198.51.100.1')
    t.equal(from('10.0.0.1', '198.51.100.1, 10.0.0.3,10.0.0.2 ,\tfd00::2'), '198.51.100.1')
    t.equal(from('::ffff:10.0.0.1', '::ffff:198.51.100.1'), '198.51.100.1')
    t.equal(from('::1', '2001:DB8:0::1'), '2001:db8::1')
    t.equal(from('::1', '2001:db8::1%eth0'), '2001:db8::1')
  })

  t.test('it is never one that the client put in front', async (t) => {
    t.equal(from('10.0.0.1', '203.0.113.9, 198.51.100.1'), '198.51.100.1')
    t.equal(from('10.0.0.1', '10.0.0.9, 198.51.100.1'), '198.51.100.1')
    t.equal(from('10.0.0.1', '203.0.113.9', '198.51.100.1'), '198.51.100.1', 'over two lines')
    t.equal(from('10.0.0.1', '203.0.113.9, 198.51.100.1', '10.0.0.2'), '198.51.100.1')
    t.equal(from('10.0.0.1', '203.0.113.9,'.repeat(1000), '198.51.100.1, 10.0.0.2'), '198.51.100.1')
  })

  t.test('it is not looked for behind a word that is no address', async (t) => {
    for (const word of [
      'unknown',
      '_hidden',
      '',
      '198.51.100.1:4711',
      '[2001:db8::1]',
      '198.51.100.256',
      '198.51.100',
      '1',
      '0xc6.51.100.1',
      '0306.063.0144.01',
      '198.51.100.1%eth0',
      '"198.51.100.1"',
      '198.51.100.1 10.0.0.2',
      'a\r\nb',
    ]) {
      t.equal(from('10.0.0.1', `203.0.113.9, ${word}`), '10.0.0.1', word)
      t.equal(from('10.0.0.1', `203.0.113.9, ${word}, 10.0.0.2`), '10.0.0.2', word)
    }
  })

  t.test(
    'it is the farthest proxy where all are trusted, and the connection where nothing is said',
    async (t) => {
      t.equal(from('10.0.0.1', '10.0.0.3, 10.0.0.2'), '10.0.0.3')
      t.equal(from('10.0.0.1'), '10.0.0.1')
      t.equal(from('10.0.0.1', ''), '10.0.0.1')
    },
  )

  t.test('it does not depend on anything to the left of the first address that is not trusted', async (t) => {
    const trusted = fc.ipV4().map((address) => address.replace(/^\d+/, '10'))
    const client = fc.ipV4().filter((address) => !address.startsWith('10.'))
    const forged = fc.array(fc.oneof(fc.ipV4(), fc.ipV6(), fc.string()), { maxLength: 4 })
    const property = fc.property(
      forged,
      client,
      fc.array(trusted, { maxLength: 3 }),
      (left, address, proxies) => {
        const list = [...left, address, ...proxies].join(', ')
        return from('10.255.255.255', list) === address
      },
    )
    t.doesNotThrow(() => fc.assert(property, { numRuns: 1000 }))
  })
})
