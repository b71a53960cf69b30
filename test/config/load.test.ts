import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { explain, loadConfig } from '../../src/config/load.ts'
import { accepted, refused } from './support.ts'

t.test('the environment wins over the file, and flags over both', async (t) => {
  const yaml =
    'listen: { host: h1, port: 1 }\nadmin: { host: a1, port: 11 }\nupstreams:\n- { prefix: /, url: http://u }'
  const env = { SIDECAR_LISTEN_PORT: '2', SIDECAR_ADMIN_PORT: '12' }
  const { config, originOf } = accepted({ yaml, env, flags: { '--admin-port': '13' } })
  t.match(config, { listen: { host: 'h1', port: 2 }, admin: { host: 'a1', port: 13 } })
  t.equal(originOf('listen.host'), 'sidecar.yaml:1:17')
  t.equal(originOf('listen.port'), 'SIDECAR_LISTEN_PORT')
  t.equal(originOf('admin.port'), '--admin-port')
  t.equal(originOf('upstreams'), 'sidecar.yaml:4:1')
  t.equal(originOf('workers'), 'default')
})

t.test('an invalid value is ignored if a later source overrides it', async (t) => {
  t.match(accepted({ yaml: 'listen: { port: nonsense }', flags: { '--listen-port': '5' } }).config.listen, {
    port: 5,
  })
})

t.test('the default revocations file may be missing, any other must exist', async (t) => {
  const file = '/etc/storage-auth-sidecar/revocations.yaml'
  t.same(accepted({ yaml: `revocations: { file: ${file} }` }).config.revocations, { file, required: false })
  t.same(accepted({ flags: { '--revocations-file': '/r' } }).config.revocations, {
    file: '/r',
    required: true,
  })
})

t.test('a configuration without an upstream is refused, unless the command forwards nothing', async (t) => {
  const expected =
    'upstreams: at least one upstream is needed; set upstreams in a file (--config FILE), or SIDECAR_UPSTREAM_URL (default)'
  t.strictSame(refused({ env: {} }), [expected])
  t.strictSame(refused({ env: {}, yaml: 'upstreams:\n' }), [expected])
  t.strictSame(refused({ env: {}, yaml: 'upstreams: []' }), [
    expected.replace('default', 'sidecar.yaml:1:12'),
  ])
  t.strictSame(accepted({ env: {}, needsUpstream: false }).config.upstreams, [])
})

t.test('the problems of all sources are reported at once', async (t) => {
  const yaml = `
listen: { prot: 1, port: 70000 }
admin: [1]
upstreams:
  - { prefix: a, url: "http://me:hunter2@host", keyFile: k }
  - 7
token: { lifetimeSeconds: 10, maxLifetimeSeconds: 5 }
nonsense: 1
`
  t.match(
    refused({ yaml, env: { SIDECAR_LOG_LEVEL: 'loud', SIDECAR_LOGLEVEL: 'x' }, flags: { '--workers': '0' } }),
    [
      ': SIDECAR_LOGLEVEL is not a setting; did you mean SIDECAR_LOG_LEVEL? (SIDECAR_LOGLEVEL)',
      'listen.port: must be an integer from 0 to 65535 (sidecar.yaml:2:26)',
      'listen.prot: unknown setting; known here: host, port, basePath, tls (sidecar.yaml:2:11)',
      'admin: must be a map of settings: host, port, tls (sidecar.yaml:3:8)',
      "upstreams[0].prefix: must be a path that begins with '/', percent-encoded, without '?', '#' and spaces (sidecar.yaml:5:15)",
      /^upstreams\[0\].url: must be http:.* \(sidecar.yaml:5:23\)$/,
      'upstreams[0].keyFile: needs a url that begins with https: (sidecar.yaml:5:58)',
      'upstreams[0].keyFile: needs certFile beside it (sidecar.yaml:5:58)',
      'upstreams[1]: must be a map such as { prefix: /, url: http://127.0.0.1:9000 } (sidecar.yaml:6:5)',
      'log.level: must be one of: trace, debug, info, warn, error, fatal, silent (SIDECAR_LOG_LEVEL)',
      "workers: must be an integer from 1 to 1024, or 'auto' (--workers)",
      'nonsense: unknown setting; known here: listen, admin, upstreams, token, keys, credentials, revocations, trustedIssuers, cache, identity, enforcement, forwarded, publicRoutes, forwardAuth, corsPreflight, links, upgrade, limits, timeouts, shutdown, log, workers, contract, cors (sidecar.yaml:8:1)',
      "token.maxLifetimeSeconds: must be at least token.lifetimeSeconds (10): the sidecar's own tokens would be refused (sidecar.yaml:7:51)",
    ],
  )
})

t.test('the file is named by --config, else by SIDECAR_CONFIG, else there is none', async (t) => {
  const dir = t.testdir({ 'a.yaml': 'listen: { port: 1 }', 'b.yaml': 'listen: { port: 2 }' })
  const env = { SIDECAR_CONFIG: join(dir, 'a.yaml'), SIDECAR_UPSTREAM_URL: 'http://u' }
  const portOf = (loaded: ReturnType<typeof loadConfig>) => loaded.ok && loaded.value.config.listen.port
  t.equal(portOf(loadConfig({ env, flags: {} })), 1)
  t.equal(portOf(loadConfig({ file: join(dir, 'b.yaml'), env, flags: {} })), 2)
  t.equal(
    portOf(loadConfig({ file: undefined, env: { ...env, SIDECAR_CONFIG: undefined }, flags: {} })),
    8080,
  )
})

t.test('an unreadable file is one problem and hides none of other sources', async (t) => {
  const dir = t.testdir({ latin1: Buffer.from('token: { issuer: caf\xe9 }', 'latin1') })
  writeFileSync(join(dir, 'utf16'), Buffer.from('\uFEFFlisten: {}', 'utf16le'))
  mkdirSync(join(dir, 'directory'))
  const about = (file: string) => refused({ file, env: { SIDECAR_ADMIN_PORT: 'x' } })
  const other = 'admin.port: must be an integer from 0 to 65535 (SIDECAR_ADMIN_PORT)'
  for (const [name, reason] of [
    ['missing', 'there is no such file or directory'],
    ['latin1/below', 'a part of the path is not a directory'],
    ['directory', 'it is a directory'],
    ['latin1', 'it is not UTF-8 text'],
    ['utf16', 'it is not UTF-8 text'],
  ] as const) {
    const file = join(dir, name)
    t.strictSame(about(file), [`: cannot read the configuration: ${reason} (${file})`, other], name)
  }
  t.strictSame(refused({ file: '' }), [': must be the path of a settings file (--config or SIDECAR_CONFIG)'])
})

t.test('every effective value is listed with its origin, without the query of a URL', async (t) => {
  const effective = explain(accepted({ yaml: 'listen:\n  port: 81', flags: { '--log-level': 'warn' } }))
  const find = (setting: string) => effective.find((one) => one.setting === setting)
  t.match(find('listen.port'), { value: 81, origin: 'sidecar.yaml:2:9' })
  t.match(find('log.level'), { value: 'warn', origin: 'flag --log-level' })
  t.strictSame(find('upstreams')?.value, [{ prefix: '/', url: 'http://127.0.0.1:9000' }])
  const verifying = accepted({ flags: { '--keys-jwks-url': 'https://a/b?c=hunter2' } })
  t.match(explain(verifying).find(({ setting }) => setting === 'keys.jwksUrl')?.value, 'https://a/b?***')
  const trusting = accepted({
    yaml: 'trustedIssuers: [{ issuer: i, jwksUrl: "https://a/b?canary", audience: x, accountPrefix: p }]',
  })
  t.match(JSON.stringify(explain(trusting)), '"jwksUrl":"https://a/b?***"')
  t.notOk(find('listen.tls.certFile'), 'settings without a value are left out')
})
