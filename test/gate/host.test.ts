import t from 'tap'
import { isHost } from '../../src/gate/host.ts'

t.test('a host has one reading, or is none', async (t) => {
  for (const host of [
    'a',
    'storage.example:8080',
    '192.0.2.1',
    '[2001:db8::1]:443',
    'a:',
    'a:65535',
    'A_b~%41',
  ])
    t.equal(isHost(host), true, host)
  for (const host of [
    '',
    ':80',
    'user@a',
    'a,b',
    'a b',
    'a/b',
    'a:65536',
    'a:x',
    'a:000080',
    '[::1',
    '[fe80::1%eth0]',
    '[a]',
  ])
    t.equal(isHost(host), false, host)
})
