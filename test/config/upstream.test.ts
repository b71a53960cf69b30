import t from 'tap'
import { accepted, refused } from './support.ts'

const one = (upstream: object) => ({ env: { SIDECAR_UPSTREAMS: JSON.stringify([upstream]) } })
const at = (url: string) => refused(one({ prefix: '/', url }))

t.test('an address is a scheme, a host and an optional port, or a socket', async (t) => {
  for (const url of [
    ...['http://127.0.0.1:9000', 'http://storage', 'http://storage/', 'HTTPS://Storage.example:443/'],
    ...['http://[::1]:9000', 'http://my_service:1', 'http://bücher.example:65535'],
    ...['unix:/run/storage/api.sock', `unix:/${'s'.repeat(106)}`],
  ]) {
    t.strictSame(at(url), [], url)
  }
  t.equal(accepted(one({ prefix: '/', url: 'http://storage/' })).config.upstreams[0]?.url, 'http://storage/')
})

t.test('an address with unused or missing parts is refused', async (t) => {
  for (const url of [
    ...['', 'storage:9000', 'ftp://h', 'http:h', 'http:/h', 'http://', 'http://:80'],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an unexpanded template
    ...['http://h:0', 'http://h:', 'http://h:65536', 'http://${HOST}:80', 'http://a,b:80'],
    ...['http://user@h', 'http://user:hunter2@h', 'http://@h', 'http://h?x', 'http://h/a?x'],
    ...['http://h/#', ' http://h', 'http://h\n', 'http://h\\x', 'unix:relative.sock', 'unix:', 'unix:/'],
    ...['unix:///run/x.sock', 'unix:/run/', 'unix:/run/x?y', 'unix:/a b'],
    ...[`unix:/${'s'.repeat(107)}`, `unix:/${'é'.repeat(54)}`],
  ]) {
    t.match(at(url), [/^upstreams\[0\].url: must be http:.* without a user name, path below the host/], url)
    t.notMatch(at(url), /hunter2/)
  }
  for (const url of ['http://h/base', 'https://h:1/a/b/', 'http://h//'])
    t.match(at(url), [/^upstreams\[0\].url: must have no path behind the host:/], url)
  t.match(refused(one({ prefix: '/', url: 9000 })), [/^upstreams\[0\].url: must be http:/])
})

t.test('certificates need https, and a certificate needs its key', async (t) => {
  const tls = (url: string, files: object) =>
    refused(one({ prefix: '/', url, ...files })).map((problem) => problem.replace(/ \(.*/, ''))
  t.strictSame(tls('https://h', { caFile: 'a', certFile: 'b', keyFile: 'c' }), [])
  t.strictSame(tls('https://h', { caFile: 'a' }), [])
  t.strictSame(tls('https://h', { certFile: 'b' }), ['upstreams[0].certFile: needs keyFile beside it'])
  t.strictSame(tls('https://h', { keyFile: 'b' }), ['upstreams[0].keyFile: needs certFile beside it'])
  for (const url of ['http://h', 'unix:/h']) {
    t.strictSame(tls(url, { caFile: 'a', certFile: 'b', keyFile: 'c' }), [
      'upstreams[0].caFile: needs a url that begins with https:',
      'upstreams[0].certFile: needs a url that begins with https:',
      'upstreams[0].keyFile: needs a url that begins with https:',
    ])
  }
})

t.test('no two upstreams serve the same paths', async (t) => {
  const prefixes = (...all: unknown[]) =>
    refused({
      env: { SIDECAR_UPSTREAMS: JSON.stringify(all.map((prefix) => ({ prefix, url: 'http://h' }))) },
    }).map((problem) => problem.replace(/ \(SIDECAR.*/, ''))
  const same = 'serves the same paths as an upstream before it'
  t.strictSame(prefixes('/', '/a', '/ab', '/a/b', '/A', '/%61'), [])
  t.strictSame(prefixes('/', '/'), [`upstreams[1].prefix: ${same}`])
  t.strictSame(prefixes('/a/', '/b', '/a'), [`upstreams[2].prefix: ${same}`])
})

t.test('a prefix is a path of raw bytes', async (t) => {
  for (const prefix of ['a', '', '/a?b', '/a#', '/a b', '/é', '*']) {
    t.match(
      refused(one({ prefix, url: 'http://h' })),
      [/^upstreams\[0\].prefix: must be a path that begins with/],
      prefix,
    )
  }
})
