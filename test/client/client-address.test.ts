import fc from 'fast-check'
import t from 'tap'
import { clientNetwork, createPeers, type Peer } from '../../src/client/client-address.ts'

const peer = (remoteAddress: string | undefined, trust: readonly string[] = []): Peer =>
  createPeers(trust)({ remoteAddress }, false, 8080)

t.test('addresses are normalized', async (t) => {
  for (const [remoteAddress, address, node] of [
    ['192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['::FFFF:c000:207', '192.0.2.7', '192.0.2.7'],
    ['2001:0DB8:0:0:0:0:0:1', '2001:db8::1', '"[2001:db8::1]"'],
    ['fe80::1%eth0', 'fe80::1', '"[fe80::1]"'],
    ['', 'unknown', 'unknown'],
    [undefined, 'unknown', 'unknown'],
  ] as const) {
    t.match(peer(remoteAddress), { address, isTrusted: false })
    t.equal(
      peer(remoteAddress).forwardedLines(undefined),
      `X-Forwarded-For: ${address}\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\n` +
        `Forwarded: for=${node};proto=http\r\n`,
    )
  }
  const secure = createPeers([])({ remoteAddress: '::1' }, true, 443)
  t.match(secure.forwardedLines('h'), 'X-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n')
})

t.test('a peer is trusted if its address or network is listed', async (t) => {
  const table: readonly [remoteAddress: string | undefined, trust: readonly string[], trusted: boolean][] = [
    ['10.1.2.3', [], false],
    ['10.1.2.3', ['10.0.0.0/8'], true],
    ['11.1.2.3', ['10.0.0.0/8'], false],
    ['9.255.255.255', ['10.0.0.0/8'], false],
    ['10.1.2.4', ['10.1.2.3', '192.0.2.0/24', '10.1.2.4/32'], true],
    ['10.1.2.3', ['10.9.9.9/8'], true],
    ['10.1.2.3', ['0.0.0.0/0'], true],
    ['::ffff:10.1.2.3', ['10.0.0.0/8'], true],
    ['10.1.2.3', ['::ffff:10.0.0.0/104'], true],
    ['11.1.2.3', ['::ffff:10.0.0.0/104'], false],
    ['10.1.2.4', ['::ffff:10.1.2.3'], false],
    // An IPv6 range holds no IPv4 address, not even as a mapped one.
    ['10.1.2.3', ['::/0'], false],
    ['10.1.2.3', ['::/64'], false],
    ['::ffff:10.1.2.3', ['::/0'], false],
    ['10.1.2.3', ['::ffff:0:0/64'], false],
    ['::2', ['::ffff:0:0/64'], true],
    ['2001:db8::1', ['::/0'], true],
    ['2001:db8::1', ['0.0.0.0/0'], false],
    ['fd00::1', ['fd00::/8'], true],
    ['fc00::1', ['fd00::/8'], false],
    ['0:0:0:0:0:0:0:1', ['::1'], true],
    ['::2', ['::1'], false],
    ['fe80::1%eth0', ['fe80::/10'], true],
    [undefined, ['0.0.0.0/0', '::/0'], false],
  ]
  for (const [remoteAddress, trust, trusted] of table) {
    t.equal(peer(remoteAddress, trust).isTrusted, trusted, `${remoteAddress} in ${trust.join(' ')}`)
  }
  for (const entry of ['', 'localhost', '10.0.0.0/33', 'fd00::/129', '10.0.0.256']) {
    t.throws(() => createPeers([entry]), entry)
  }
})

t.test('the client is the nearest address that is not a trusted proxy', async (t) => {
  const trust = ['10.0.0.0/8', 'fd00::/8', '::1']
  const from = (remoteAddress: string, list?: string) =>
    peer(remoteAddress, trust).clientAddress({ 'x-forwarded-for': list })
  for (const [remoteAddress, list, client] of [
    ['192.0.2.7', '198.51.100.1', '192.0.2.7'], // the peer is not trusted
    ['192.0.2.7', '10.0.0.1, 10.0.0.2', '192.0.2.7'],
    ['10.0.0.1', undefined, '10.0.0.1'],
    ['10.0.0.1', '', '10.0.0.1'],
    ['10.0.0.1', '198.51.100.1', '198.51.100.1'],
    ['10.0.0.1', '198.51.100.1, 10.0.0.3,10.0.0.2 ,\tfd00::2', '198.51.100.1'],
    ['::ffff:10.0.0.1', '::ffff:198.51.100.1', '198.51.100.1'],
    ['::1', '2001:DB8:0::1%eth0', '2001:db8::1'],
    ['10.0.0.1', '203.0.113.9, 198.51.100.1', '198.51.100.1'], // the client claims the first one
    ['10.0.0.1', '10.0.0.9, 198.51.100.1', '198.51.100.1'],
    ['10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'], // all are trusted
    ['10.0.0.1', '203.0.113.9, 198.51.100.1:4711, 10.0.0.2:80', '198.51.100.1'],
    ['10.0.0.1', '203.0.113.9, [2001:db8::1]:4711, [fd00::2]:80', '2001:db8::1'],
    ['10.0.0.1', '203.0.113.9, [2001:db8::1], [fd00::2]', '2001:db8::1'],
    ['10.0.0.1', '198.51.100.1,', '198.51.100.1'],
    ['10.0.0.1', ', 198.51.100.1, ,10.0.0.2,, ', '198.51.100.1'],
  ] as const) {
    t.equal(from(remoteAddress, list), client, `${remoteAddress}: ${list}`)
  }
  for (const word of [
    ...[
      'unknown',
      '_hidden',
      '198.51.100.1:',
      '[198.51.100.1]',
      '[2001:db8::1]:',
      '[198.51.100.1',
      '198.51.100.256',
      '198.51.100',
      '1',
    ],
    '0xc6.51.100.1',
    '0306.063.0144.01',
    '198.51.100.1%eth0',
    '"198.51.100.1"',
    'a\r\nb',
  ]) {
    t.equal(from('10.0.0.1', `203.0.113.9, ${word}`), '10.0.0.1', word)
    t.equal(from('10.0.0.1', `203.0.113.9, ${word}, 10.0.0.2`), '10.0.0.2', word)
  }
  const client = fc.ipV4().filter((address) => !address.startsWith('10.'))
  const forged = fc.array(fc.oneof(fc.ipV4(), fc.ipV6(), fc.string()), { maxLength: 4 })
  const property = fc.property(forged, client, (left, address) => {
    return from('10.0.0.1', [...left, address, '10.0.0.2'].join(', ')) === address
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 500 }), 'whatever the client puts in front')
})

t.test(
  'without X-Forwarded-For, the client is the nearest address of Forwarded that is not a trusted proxy',
  async (t) => {
    const trust = ['10.0.0.0/8', 'fd00::/8']
    const from = (forwarded: string) => peer('10.0.0.1', trust).clientAddress({ forwarded })
    for (const [forwarded, client] of [
      ['for=198.51.100.1', '198.51.100.1'],
      ['For="198.51.100.1:4711"', '198.51.100.1'],
      ['for="[2001:db8::1]:4711"', '2001:db8::1'],
      ['for="[2001:DB8::1]";proto=https;by=10.0.0.1', '2001:db8::1'],
      ['proto=http; for=198.51.100.1 ;host="a;b,c"', '198.51.100.1'],
      ['for=203.0.113.9, for=198.51.100.1, for=10.0.0.2;proto=http,for="[fd00::3]:_x"', '198.51.100.1'],
      ['for=198.51.100.1,', '198.51.100.1'],
      ['for=198.51.100.1, ;', '10.0.0.1'],
      ['for=203.0.113.9, for=unknown', '10.0.0.1'],
      ['for=203.0.113.9, for=_hidden, for=10.0.0.2', '10.0.0.2'],
      ['for=203.0.113.9, by=198.51.100.1', '10.0.0.1'],
      ['for=2001:db8::1', '2001:db8::1'], // must be quoted and in brackets, but some proxies do not
      ['', '10.0.0.1'],
      // What a client sends before cannot hide what the proxy adds.
      ['for=", for=198.51.100.1', '198.51.100.1'],
      ['for="203.0.113.9, for=198.51.100.1', '198.51.100.1'],
    ] as const) {
      t.equal(from(forwarded), client, forwarded)
    }
    const both = { 'x-forwarded-for': '198.51.100.1', forwarded: 'for=203.0.113.9' }
    t.equal(peer('10.0.0.1', trust).clientAddress(both), '198.51.100.1')
    t.equal(peer('192.0.2.7', trust).clientAddress(both), '192.0.2.7', 'a peer that is not trusted')
  },
)

t.test('logins are counted by IPv4 address or IPv6 /64, and behind NAT64 by the IPv4 address', async (t) => {
  const nat64 = '64:ff9b:0:0:0:0:c000:201'
  for (const [address, network] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['2001:db8::1', '2001:db8:0:0:0:0:0:0/64'],
    ['2001:db8::ffff:4', '2001:db8:0:0:0:0:0:0/64'],
    ['2001:db8:0:1::4', '2001:db8:0:1:0:0:0:0/64'],
    ['64:ff9b::c000:201', nat64],
    ['unknown', 'unknown'],
  ] as const) {
    t.equal(clientNetwork(address), network, address)
  }
})
