import t from 'tap'
import { SETTINGS } from '../../src/config/settings.ts'
import { accepted, refused } from './support.ts'

t.test('every setting has one variable and one flag, derived from its path', async (t) => {
  t.match(
    SETTINGS.find(({ path }) => path === 'limits.loginFailures.count'),
    { variable: 'SIDECAR_LIMITS_LOGIN_FAILURES_COUNT', flag: '--limits-login-failures-count' },
  )
  for (const name of ['variable', 'flag'] as const)
    t.equal(new Set(SETTINGS.map((setting) => setting[name])).size, SETTINGS.length, `each ${name} is unique`)
})

t.test('the default of every setting can be set by variable and by flag', async (t) => {
  for (const { path, variable, flag, default: value } of SETTINGS) {
    if (value === undefined || path === 'upstreams' || path === 'credentials.postgres.poolSize') continue
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    const upstream = { SIDECAR_UPSTREAM_URL: 'http://u' }
    t.equal(accepted({ env: { ...upstream, [variable]: text } }).originOf(path), variable)
    t.equal(accepted({ env: upstream, flags: { [flag]: text } }).originOf(path), flag)
  }
})

t.test('numbers are plain decimals', async (t) => {
  const port = (text: string) => refused({ flags: { '--listen-port': text } })
  const wants = 'listen.port: must be an integer from 0 to 65535 (--listen-port)'
  for (const text of ['', ' 80', '+80', '0x50', '080', '8e1', '80.5', 'Infinity', '-1', '٨٠', '8_0']) {
    t.strictSame(port(text), [wants], JSON.stringify(text))
  }
  t.strictSame(port('0'), [])
  const { config } = accepted({ flags: { '--timeouts-idle-seconds': '0.25', '--workers': '4' } })
  t.equal(config.timeouts.idleSeconds, 0.25)
  t.equal(config.workers, 4)
  t.equal(accepted({ flags: { '--workers': 'auto' } }).config.workers, 'auto')
})

t.test('booleans are true or false', async (t) => {
  for (const text of ['', 'True', 'yes', '1', 'on', ' true']) {
    t.strictSame(refused({ flags: { '--upgrade-enabled': text } }), [
      'upgrade.enabled: must be true or false (--upgrade-enabled)',
    ])
  }
  t.equal(accepted({ flags: { '--upgrade-enabled': 'true' } }).config.upgrade.enabled, true)
  t.equal(accepted({ flags: { '--upgrade-enabled': 'false' } }).config.upgrade.enabled, false)
})

t.test('strings stay strings, even where YAML would read a number', async (t) => {
  t.equal(accepted({ flags: { '--token-issuer': '0123' } }).config.token.issuer, '0123')
  t.equal(accepted({ flags: { '--listen-base-path': '' } }).config.listen.basePath, '')
  t.equal(refused({ flags: { '--token-issuer': '' } }).length, 1)
})

t.test('lists of maps are YAML or JSON', async (t) => {
  const upstreams = [{ prefix: '/', url: 'http://127.0.0.1:1' }]
  for (const text of ['[{ prefix: /, url: http://127.0.0.1:1 }]', JSON.stringify(upstreams)]) {
    t.strictSame(accepted({ env: { SIDECAR_UPSTREAMS: text } }).config.upstreams, upstreams)
  }
  for (const text of ['', '[', 'http://u', '[{}', '{}', '{"a":1,"a":2}']) {
    t.match(
      refused({ env: { SIDECAR_UPSTREAMS: text } }),
      [/^upstreams: must be a list; .* \(SIDECAR_UPSTREAMS\)$/],
      text,
    )
  }
  t.match(refused({ env: { SIDECAR_UPSTREAMS: '[{ prefx: /, url: http://u }]' } }), [
    /^upstreams\[0\].prefix: is missing/,
    /^upstreams\[0\].prefx: unknown setting; known here: prefix, url, .* \(SIDECAR_UPSTREAMS\)$/,
  ])
})

t.test('trusted addresses may be separated by commas', async (t) => {
  const trust = (text: string) => accepted({ flags: { '--forwarded-trust': text } }).config.forwarded.trust
  t.strictSame(trust('10.0.0.0/8, ::1'), ['10.0.0.0/8', '::1'])
  t.strictSame(trust('["10.0.0.0/8","::1"]'), ['10.0.0.0/8', '::1'])
  t.strictSame(trust(''), [])
  t.match(refused({ flags: { '--forwarded-trust': '10.0.0.1,' } }), [
    /^forwarded.trust\[1\]: must be an IP address/,
  ])
})

t.test('an upstream URL conflicts only with a list of upstreams from the same source', async (t) => {
  const list = '[{ prefix: /a, url: http://list }]'
  t.strictSame(
    accepted({ env: { SIDECAR_UPSTREAMS: list }, flags: { '--upstream-url': 'http://flag' } }).config
      .upstreams,
    [{ prefix: '/', url: 'http://flag' }],
  )
  t.strictSame(refused({ env: { SIDECAR_UPSTREAM_URL: 'http://short', SIDECAR_UPSTREAMS: list } }), [
    'upstreams: cannot be used with SIDECAR_UPSTREAMS (SIDECAR_UPSTREAM_URL)',
  ])
  t.strictSame(refused({ flags: { '--upstream-url': 'http://short', '--upstreams': list } }), [
    'upstreams: cannot be used with --upstreams (--upstream-url)',
  ])
  t.match(refused({ env: { SIDECAR_UPSTREAM_URL: 'http://u?' } }), [
    /^upstreams\[0\].url: .* \(SIDECAR_UPSTREAM_URL\)$/,
  ])
})

t.test('an unknown name is a problem, with a suggestion', async (t) => {
  const env = (name: string) => refused({ env: { SIDECAR_UPSTREAM_URL: 'http://u', [name]: 'x' } })
  t.strictSame(env('SIDECAR_UPSTREAMS_'), [
    ': SIDECAR_UPSTREAMS_ is not a setting; did you mean SIDECAR_UPSTREAMS? (SIDECAR_UPSTREAMS_)',
  ])
  t.strictSame(env('SIDECAR_XYZZY'), [': SIDECAR_XYZZY is not a setting (SIDECAR_XYZZY)'])
})

t.test('other variables are ignored, including those that Kubernetes adds for a Service', async (t) => {
  const env = {
    SIDECAR_UPSTREAM_URL: 'http://u',
    PATH: '/bin',
    SIDECARX: '1',
    SIDECAR_ADMIN_SERVICE_HOST: '10.0.0.7',
    SIDECAR_ADMIN_SERVICE_PORT: '8081',
    SIDECAR_ADMIN_SERVICE_PORT_METRICS: '8081',
    SIDECAR_ADMIN_PORT: 'tcp://10.0.0.7:8081',
    SIDECAR_ADMIN_PORT_8081_TCP: 'tcp://10.0.0.7:8081',
    SIDECAR_ADMIN_PORT_8081_TCP_PROTO: 'tcp',
    SIDECAR_ADMIN_PORT_8081_TCP_PORT: '8081',
    SIDECAR_ADMIN_PORT_8081_TCP_ADDR: '10.0.0.7',
  }
  t.equal(accepted({ env }).originOf('admin.port'), 'default')
})
