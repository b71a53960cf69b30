import t from 'tap'
import { refused } from '../config/support.ts'

const long = (length: number) => 'a'.repeat(length)

/** Values that a setting takes, and values that it refuses with one problem. */
const table = [
  {
    flag: '--listen-host',
    takes: ['0.0.0.0', '::', '::1', 'localhost', 'pod-7.storage_api', 'fe80::1%eth0'],
    refuses: ['', '[::]', '0.0.0.0:8080', 'http://h', 'a b', 'h/', ':::1'],
  },
  {
    flag: '--listen-port',
    takes: ['0', '65535'],
    refuses: ['', ' 80', '+80', '0x50', '080', '8e1', '80.5', 'Infinity', '-1', '٨٠', '8_0', '65536'],
  },
  { flag: '--upgrade-enabled', takes: ['true', 'false'], refuses: ['', 'True', 'yes', '1', 'on', ' true'] },
  {
    flag: '--listen-base-path',
    takes: ['', '/a', '/account-api/v1', '/a//b', '/%C3%A9'],
    refuses: ['/', 'a', '/a/', '/a?', '/a#b', '/a b', '/é', '/a\n', '/a\x7f'],
  },
  {
    flag: '--token-issuer',
    takes: ['a', 'https://issuer/é', long(1024)],
    refuses: ['', 'a\nb', 'a\0', long(1025)],
  },
  { flag: '--token-lifetime-seconds', takes: ['1', '315360000'], refuses: ['0', '-1', '315360001', '1.5'] },
  { flag: '--keys-directory', takes: ['keys', '/a b/c', long(4096)], refuses: ['', 'a\0b', long(4097)] },
  { flag: '--revocations-file', takes: ['a:b//c'], refuses: ['postgres://u:p@h/d', ' a://b', 'FILE:///a'] },
  {
    flag: '--keys-jwks-url',
    takes: ['http://issuer:8081/.well-known/jwks.json', 'https://issuer/keys?p=1', 'HTTPS://[::1]/'],
    refuses: [
      '',
      'issuer',
      'file:///etc/passwd',
      'http:issuer',
      'http://u@h/',
      'https://u:p@h/',
      'http://:p@h/',
      'http://h/#f',
      'http://h/ x',
      'http://h:99999/',
    ],
  },
  {
    flag: '--forwarded-trust',
    takes: ['10.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '::1', 'fd00::/8', '::/128', '::ffff:10.0.0.0/104'],
    refuses: [
      '10.0.0',
      '10.0.0.0/33',
      '10.0.0.0/08',
      '10.0.0.0/',
      '10.0.0.0/8/8',
      '010.0.0.1',
      '0x7f.1',
      '::/129',
      'fe80::1%eth0',
      'localhost',
      '*',
      '10.0.0.0/-1',
    ],
  },
  { flag: '--forward-auth-path', takes: ['', '/_auth'], refuses: ['/', '_auth', '/_auth/', '/a?b'] },
  { flag: '--contract-refused-token-status', takes: ['400', '401'], refuses: ['403', '400.5', 'x', ''] },
  {
    flag: '--cors-allowed-origins',
    takes: ['*', '', 'https://app.example', 'http://localhost:3000,http://[::1]:1', 'capacitor://localhost'],
    refuses: [
      'app.example',
      'https://app.example/',
      'https://a.example:443',
      'HTTPS://a',
      'https://*.a',
      'null',
    ],
  },
  { flag: '--timeouts-idle-seconds', takes: ['0.001', '2147483'], refuses: ['0', '0.0001', '2147484', '-5'] },
  { flag: '--log-level', takes: ['debug', 'silent'], refuses: ['INFO', 'verbose'] },
  { flag: '--workers', takes: ['1', '1024', 'auto'], refuses: ['0', '1025', '1.5', 'all', ''] },
]

for (const { flag, takes, refuses } of table) {
  t.test(`${flag} accepts valid values and refuses others`, async (t) => {
    for (const value of takes) {
      t.strictSame(refused({ flags: { [flag]: value } }), [], JSON.stringify(value).slice(0, 60))
    }
    for (const value of refuses) {
      const problems = refused({ flags: { [flag]: value } })
      t.match(problems, [/: must be .* \(--[a-z-]+\)$/], JSON.stringify(value).slice(0, 60))
      t.equal(problems.length, 1, 'one problem')
    }
  })
}

t.test('a public route has an exact path and a method that can be forwarded', async (t) => {
  const problems = (method: string, path: string) =>
    refused({ flags: { '--public-routes': JSON.stringify([{ method, path }]) } })
  for (const [method, path] of [
    ['GET', '/'],
    ['PROPFIND', '/a/%2A/b'],
    ['M-SEARCH', "/a;b=c'(d)"],
  ] as const) {
    t.strictSame(problems(method, path), [], `${method} ${path}`)
  }
  for (const method of ['', 'get', 'Get', 'CONNECT', 'TRACE', 'GET ', 'G T', 'GÉT', 'GET,PUT']) {
    t.match(
      problems(method, '/'),
      [/^publicRoutes\[0\].method: must be a request method in upper case/],
      method,
    )
  }
  for (const path of ['', 'x', '/*', '/a/*', '/a?b', '/a#b', '/a b', '/é', 'http://h/']) {
    t.match(problems('GET', path), [/^publicRoutes\[0\].path: must be an exact path/], path)
  }
  t.strictSame(problems('TRACEX', '/x'), [], 'only the exact word is refused')
})
