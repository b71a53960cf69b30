import t from 'tap'
import { forwardedLines } from '../../src/forward/forwarded-lines.ts'
import { createPeers, type Peer, type PeerFacts } from '../../src/http/peer.ts'

/** A peer by its address, connected without TLS to port 8080. */
function peer(remoteAddress: string, facts: Partial<PeerFacts> = {}): Peer {
  return createPeers([])({ remoteAddress, localPort: 8080, tls: false, ...facts })
}

t.test('a connection is told in five lines', async (t) => {
  t.equal(
    forwardedLines(peer('192.0.2.7'), 'storage.example:8080'),
    'X-Forwarded-For: 192.0.2.7\r\n' +
      'X-Forwarded-Proto: http\r\n' +
      'X-Forwarded-Port: 8080\r\n' +
      'X-Forwarded-Host: storage.example:8080\r\n' +
      'Forwarded: for=192.0.2.7;proto=http;host="storage.example:8080"\r\n',
  )
})

t.test('with TLS it says so', async (t) => {
  const lines = forwardedLines(peer('192.0.2.7', { tls: true, localPort: 8443 }), 'a')
  t.match(lines, 'X-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n')
  t.match(lines, 'Forwarded: for=192.0.2.7;proto=https;host="a"\r\n')
})

t.test('a request without a host is told without one', async (t) => {
  t.equal(
    forwardedLines(peer('192.0.2.7'), undefined),
    'X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\nForwarded: for=192.0.2.7;proto=http\r\n',
  )
})
