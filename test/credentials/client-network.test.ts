import t from 'tap'
import { clientNetwork } from '../../src/credentials/client-network.ts'

t.test('an IPv4 address stands for itself, mapped into IPv6 or not', async (t) => {
  t.equal(clientNetwork('192.0.2.7'), '192.0.2.7')
  t.equal(clientNetwork('::ffff:192.0.2.7'), '192.0.2.7')
  t.equal(clientNetwork('::ffff:c000:207'), '192.0.2.7')
  t.not(clientNetwork('192.0.2.8'), clientNetwork('192.0.2.7'))
})

t.test('all addresses of one /64 are one client', async (t) => {
  const network = clientNetwork('2001:db8:1:2::1')
  t.equal(network, '2001:db8:1:2:0:0:0:0/64')
  t.equal(clientNetwork('2001:DB8:1:2:ffff:ffff:ffff:ffff'), network)
  t.equal(clientNetwork('2001:db8:1:2::1%eth0'), network)
  t.not(clientNetwork('2001:db8:1:3::1'), network)
})

t.test('clients behind a NAT64 are told apart by their IPv4 address', async (t) => {
  t.not(clientNetwork('64:ff9b::192.0.2.7'), clientNetwork('64:ff9b::192.0.2.8'))
})

t.test('what is no address stands for itself', async (t) => {
  t.equal(clientNetwork(''), '')
  t.equal(clientNetwork('unix'), 'unix')
})
