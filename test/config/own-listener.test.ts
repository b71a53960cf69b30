import { hostname, networkInterfaces } from 'node:os'
import t from 'tap'
import { isOwnListener } from '../../src/config/own-listener.ts'
import { refused } from './support.ts'

const anyAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family }) => family === 'IPv4')?.address

t.test('a listener at every address has each name and address of this machine', async (t) => {
  const own = [
    'localhost',
    'LOCALHOST',
    'localhost.',
    'a.localhost',
    '127.0.0.1',
    '127.1',
    '127.200.0.9',
    '0x7f.1',
    '0.0.0.0',
    '[::]',
    '[::1]',
    '[::ffff:127.0.0.1]',
    hostname(),
    anyAddress ?? '127.0.0.1',
  ]
  for (const host of ['0.0.0.0', '::']) {
    for (const name of own) {
      t.ok(isOwnListener(`http://${name}:8080`, { host, port: 8080 }), `${name}, at ${host}`)
    }
    for (const name of ['storage.example', '192.0.2.7', '[2001:db8::7]', 'notlocalhost']) {
      t.notOk(isOwnListener(`http://${name}:8080`, { host, port: 8080 }), `${name}, at ${host}`)
    }
  }
})

t.test('a listener at one address leaves the same port of others to other services', async (t) => {
  const port = 8080
  const table: readonly (readonly [url: string, host: string, isOwn: boolean])[] = [
    ['http://127.0.0.1:8080', '127.0.0.1', true],
    ['http://localhost:8080', '127.0.0.1', true],
    ['http://localhost:8080', '::1', true],
    ['http://127.0.0.1:8080', 'localhost', true],
    ['http://0.0.0.0:8080', '127.0.0.1', true],
    ['http://[::]:8080', '::1', true],
    ['http://127.0.0.2:8080', '127.0.0.1', false],
    ['http://192.0.2.7:8080', '192.0.2.7', true],
    ['http://[::ffff:192.0.2.7]:8080', '192.0.2.7', true],
    ['http://0.0.0.0:8080', '192.0.2.7', false],
    ['http://localhost:8080', '192.0.2.7', false],
    ['http://sidecar.example:8080', 'sidecar.example', true],
  ]
  for (const [url, host, isOwn] of table) {
    t.equal(isOwnListener(url, { host, port }), isOwn, `${url}, at ${host}`)
  }
})

t.test('the port counts, by default that of the scheme; a unix socket is no listener', async (t) => {
  const host = '0.0.0.0'
  t.notOk(isOwnListener('http://localhost:9000', { host, port: 8080 }))
  t.ok(isOwnListener('http://localhost', { host, port: 80 }))
  t.ok(isOwnListener('https://localhost', { host, port: 443 }))
  t.notOk(isOwnListener('https://localhost', { host, port: 80 }))
  t.notOk(isOwnListener('http://localhost', { host, port: 0 }))
  t.notOk(isOwnListener('unix:/run/localhost', { host, port: 80 }))
})

t.test('an upstream that is the data listener or the admin listener is a problem of its URL', async (t) => {
  const yaml = [
    'upstreams:',
    '  - { prefix: /a, url: "http://localhost:8080" }',
    '  - { prefix: /b, url: "http://127.0.0.1:8081" }',
  ].join('\n')
  t.match(refused({ yaml, env: {} }), [
    /upstreams\[0\]\.url: is the data listener of this sidecar/,
    /upstreams\[1\]\.url: is the admin listener of this sidecar/,
  ])
})
