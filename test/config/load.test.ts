import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { effectiveSettings, loadConfig } from '../../src/config/load.ts'
import { settingsSchema } from '../../src/config/schema.ts'
import { SETTINGS } from '../../src/config/settings.ts'
import { accepted, refused } from './support.ts'

const GROUPS = settingsSchema.keyof().options.join(', ')

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
      `nonsense: unknown setting; known here: ${GROUPS} (sidecar.yaml:8:1)`,
      "token.maxLifetimeSeconds: must be at least token.lifetimeSeconds (10): the sidecar's own tokens would be refused (sidecar.yaml:7:51)",
    ],
  )
})

t.test('the file is named by --config, else by SIDECAR_CONFIG, else there is none', async (t) => {
  const dir = t.testdir({ 'a.yaml': 'listen: { port: 1 }', 'b.yaml': 'listen: { port: 2 }' })
  const env = { SIDECAR_CONFIG: join(dir, 'a.yaml'), SIDECAR_UPSTREAM_URL: 'http://u' }
  const port = (loaded: ReturnType<typeof loadConfig>) => loaded.ok && loaded.value.config.listen.port
  t.equal(port(loadConfig({ env, flags: {} })), 1)
  t.equal(port(loadConfig({ file: join(dir, 'b.yaml'), env, flags: {} })), 2)
  t.equal(port(loadConfig({ file: undefined, env: { ...env, SIDECAR_CONFIG: undefined }, flags: {} })), 8080)
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
  for (const file of ['', 'postgres://u:p@h/d']) {
    t.strictSame(refused({ file }), [': must be the path of a settings file (--config or SIDECAR_CONFIG)'])
  }
})

t.test('a file of 130,000 mistakes is refused with all of them', async (t) => {
  t.equal(refused({ yaml: '}'.repeat(130_000) }).length, 130_000)
})

t.test('every effective value is listed with its origin, without the query of a URL', async (t) => {
  const effective = effectiveSettings(
    accepted({ yaml: 'listen:\n  port: 81', flags: { '--log-level': 'warn' } }),
  )
  const find = (setting: string) => effective.find((one) => one.setting === setting)
  t.match(find('listen.port'), { value: 81, origin: 'sidecar.yaml:2:9' })
  t.match(find('log.level'), { value: 'warn', origin: 'flag --log-level' })
  t.strictSame(find('upstreams')?.value, [{ prefix: '/', url: 'http://127.0.0.1:9000' }])
  const verifying = accepted({ flags: { '--keys-jwks-url': 'https://a/b?c=hunter2' } })
  t.match(
    effectiveSettings(verifying).find(({ setting }) => setting === 'keys.jwksUrl')?.value,
    'https://a/b?***',
  )
  const trusting = accepted({
    yaml: 'trustedIssuers: [{ issuer: i, jwksUrl: "https://a/b?canary", audience: x, accountPrefix: p }]',
  })
  t.match(JSON.stringify(effectiveSettings(trusting)), '"jwksUrl":"https://a/b?***"')
  t.notOk(find('listen.tls.certFile'), 'settings without a value are left out')
})

t.test('the default of every setting can be set by variable and by flag', async (t) => {
  for (const { path, variable, flag, default: value } of SETTINGS) {
    if (value === undefined || path === 'upstreams' || path === 'credentials.postgres.poolSize') {
      continue
    }
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    const upstream = { SIDECAR_UPSTREAM_URL: 'http://u' }
    t.equal(accepted({ env: { ...upstream, [variable]: text } }).originOf(path), variable)
    t.equal(accepted({ env: upstream, flags: { [flag]: text } }).originOf(path), flag)
  }
})

t.test('texts become numbers and booleans, and strings stay strings', async (t) => {
  const { config } = accepted({ flags: { '--timeouts-idle-seconds': '0.25', '--upgrade-enabled': 'true' } })
  t.match(config, { timeouts: { idleSeconds: 0.25 }, upgrade: { enabled: true } })
  t.equal(accepted({ flags: { '--token-issuer': '0123' } }).config.token.issuer, '0123')
  t.equal(accepted({ flags: { '--listen-base-path': '' } }).config.listen.basePath, '')
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
  t.strictSame(env('SIDECAR_XYZZY'), [
    ': SIDECAR_XYZZY is not a setting; docs/configuration.md has all (SIDECAR_XYZZY)',
  ])
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

t.test('an empty file, group or list means the defaults', async (t) => {
  for (const yaml of [
    '',
    '# nothing\n',
    '---\n',
    'null',
    '{}',
    'token:\nlisten: {}\n',
    'publicRoutes:\nforwarded:\n  trust:\n',
  ]) {
    t.match(
      accepted({ yaml }).config,
      { token: { lifetimeSeconds: 86400 }, publicRoutes: [] },
      JSON.stringify(yaml),
    )
  }
  t.equal(accepted({ yaml: 'listen:\n  tls:\n' }).config.listen.tls, undefined)
})

t.test('a value of the wrong type is refused with the expected type and its location', async (t) => {
  for (const [yaml, problem] of [
    ['listen: { port: "8080" }', /^listen.port: must be an integer from 0 to 65535 \(sidecar.yaml:1:17\)$/],
    ['listen:\n  port:\n  host: h', /^listen.port: must be an integer from 0 to 65535 \(sidecar.yaml:2:8\)$/],
    ['upgrade: { enabled: yes }', /^upgrade.enabled: must be true or false \(sidecar.yaml:1:21\)$/],
    ['forwarded: { trust: 10.0.0.0/8 }', /^forwarded.trust: must be a list of IP addresses.*:1:21\)$/],
    ['publicRoutes: [GET /x]', /^publicRoutes\[0\]: must be a map such as \{ method: GET.*:1:16\)$/],
    ['publicRoutes: [{method: GET}]', /^publicRoutes\[0\].path: is missing; must be an exact path.*:1:16\)$/],
    ['upstreams: { prefix: /, url: u }', /^upstreams: must be a list; each member must be a map.*:1:12\)$/],
    ['upstreams: [{ prefix: / }]', /^upstreams\[0\].url: is missing; must be http:.*:1:13\)$/],
    ['token: { issuer: 12 }', /^token.issuer: must be text \(in quotes if it looks like a number.*:1:18\)$/],
    ['listen: { tls: { certFile: c } }', /^listen.tls.keyFile: is missing; must be a path.*:1:16\)$/],
    ['credentials: { postgres: { poolSize: 3 } }', /^credentials.postgres.urlFile: is missing;.*:1:26\)$/],
  ] as const) {
    // The upstream of the environment would replace those of the file.
    const sources = yaml.startsWith('upstreams:') ? { yaml, env: {} } : { yaml }
    t.match(refused(sources), [problem], yaml)
  }
})

t.test('the file must be a map', async (t) => {
  for (const yaml of ['hunter2', '- listen', '42', '"text"']) {
    const problems = refused({ yaml, env: {} })
    t.equal(problems.length, 1, 'nothing is said of settings that seem missing')
    t.match(problems[0], /^: must be a map of settings: name, listen, .* \(sidecar.yaml:1:1\)$/)
    t.notMatch(problems[0], /hunter2/)
  }
})

t.test('unknown names are refused at each depth, with a suggestion', async (t) => {
  const table: [string, string][] = [
    ['port: 1', 'port: unknown setting; did you mean listen.port or admin.port? (sidecar.yaml:1:1)'],
    [
      'token: { lifetime_seconds: 1 }',
      'token.lifetime_seconds: unknown setting; did you mean token.lifetimeSeconds? (sidecar.yaml:1:10)',
    ],
    [
      'token: { lifetime: 1 }',
      'token.lifetime: unknown setting; did you mean token.lifetimeSeconds? (sidecar.yaml:1:10)',
    ],
    [
      'limits:\n  loginFailures:\n    coun: 1',
      'limits.loginFailures.coun: unknown setting; did you mean limits.loginFailures.count? (sidecar.yaml:3:5)',
    ],
    [
      'publicRoutes: [{ Method: GET, path: /x, method: GET }]',
      'publicRoutes[0].Method: unknown setting; did you mean method? (sidecar.yaml:1:18)',
    ],
    [
      'publicRoutes: [{ path: /x, method: GET, why: 1 }]',
      'publicRoutes[0].why: unknown setting; known here: method, path (sidecar.yaml:1:41)',
    ],
    [
      'log: { "a\\nb": 1 }',
      'log."a\\nb": unknown setting; known here: level, audit, access, slowSeconds (sidecar.yaml:1:8)',
    ],
    ['log: {}\n404: x', `404: unknown setting; known here: ${GROUPS} (sidecar.yaml:2:1)`],
  ]
  for (const [yaml, problem] of table) {
    t.strictSame(refused({ yaml }), [problem], yaml)
  }
  t.match(String(refused({ yaml: 'trustedIssuers: [{ accounts: { ~: a } }]' })), 'accounts."": must be a map')
})

t.test('text that is not YAML is refused with line and column and without an excerpt', async (t) => {
  const table: [string, string | RegExp][] = [
    ['listen:\n\tport: 1', /^: not valid YAML: Tabs are not allowed as indentation \(sidecar.yaml:2:1\)$/],
    ['listen: {}\nlisten: {}', /^: not valid YAML: Map keys must be unique: listen \(sidecar.yaml:2:1\)$/],
    [
      'log:\n  level: info\n  "level": warn',
      /^: not valid YAML: Map keys must be unique: level \(sidecar.yaml:3:3\)$/,
    ],
    ['log: { hunter2: 1, hunter2: 2 }', /: Map keys must be unique \(sidecar.yaml:1:20\)$/],
    ['log: {}\n---\nlog: {}', /^: not valid YAML: more than one YAML document \(sidecar.yaml:2:1\)$/],
    ['listen: { port: 1', /^: not valid YAML: .* \(sidecar.yaml:1:18\)$/],
    ['token: { issuer: "hunter2 }', /^: not valid YAML: .* \(sidecar.yaml:1:28\)$/],
    ['token: *hunter2', /^: not valid YAML: .* \(sidecar.yaml:1:8\)$/],
    ['%YAML 1.1\n---\nlog: !!omap [a: 1]', /: Unresolved tag \(sidecar.yaml:3:6\)$/],
    ['token: !hunter2 x', /^: not valid YAML: Unresolved tag \(sidecar.yaml:1:8\)$/],
    ['token: {} hunter2', /^: not valid YAML: Unexpected scalar at node end \(sidecar.yaml:1:11\)$/],
    [
      '@hunter2',
      /^: not valid YAML: Plain value cannot start with reserved character @ \(sidecar.yaml:1:1\)$/,
    ],
  ]
  for (const [yaml, problem] of table) {
    const [first = ''] = refused({ yaml, env: {} })
    t.match(first, problem, JSON.stringify(yaml))
    t.notMatch(first, /hunter2/)
  }
})

t.test('anchors, aliases and merge keys work as in YAML', async (t) => {
  const yaml = `
upstreams:
  - &first { prefix: /a, url: https://storage:9000, caFile: ca.pem }
  - { <<: *first, prefix: /b }
admin: { host: &host 127.0.0.1 }
listen: { host: *host }
`
  const { config } = accepted({ yaml, env: {} })
  t.strictSame(config.upstreams[1], { prefix: '/b', url: 'https://storage:9000', caFile: 'ca.pem' })
  t.equal(config.listen.host, '127.0.0.1')
  t.strictSame(
    refused({ yaml: 'publicRoutes:\n- &a { method: GET, path: bad }\n- *a\n- { <<: *a }\n' }).map((problem) =>
      problem.replace(/must be.*\(s/, '(s'),
    ),
    [
      'publicRoutes[0].path: (sidecar.yaml:2:27)',
      'publicRoutes[1].path: (sidecar.yaml:3:3)',
      'publicRoutes[2].path: (sidecar.yaml:4:3)',
    ],
    'a value of an alias is placed at the alias, and a merged one where it is merged',
  )
})

t.test('aliases that multiply or refer to themselves, and a merge of a list, are refused', async (t) => {
  const laughs = Array.from(
    { length: 9 },
    (_, n) => `x${n + 1}: &x${n + 1} [${Array(9).fill(`*x${n}`).join(',')}]`,
  )
  t.strictSame(refused({ yaml: `x0: &x0 [lol]\n${laughs.join('\n')}` }), [
    ': not valid YAML: too many aliases, or a merge (`<<`) of what is no map (sidecar.yaml:1:1)',
  ])
  t.match(refused({ yaml: 'log: { <<: [{ level: info }, 1] }' }), [/a merge \(`<<`\) of what is no map/])
  t.match(refused({ yaml: 'publicRoutes: &x [*x]' }), [/^publicRoutes\[0\]: must be a map/])
  t.match(refused({ yaml: 'log: &x { level: *x }' }), [/^log.level: must be one of/])
})

t.test('a file that is nested too deeply is refused', async (t) => {
  const deep = ['['.repeat(6e4), '{a: '.repeat(2e4), '- '.repeat(2e4), `${'['.repeat(200)}${']'.repeat(200)}`]
  for (const yaml of deep) {
    const problems = refused({ yaml })
    t.equal(problems.length, 1, yaml.slice(0, 5))
    t.match(problems[0], /^: not valid YAML: nested too deeply \(sidecar\.yaml:1:\d+\)$/)
  }
})

t.test('of a map of too many members the first are refused, and the others counted', async (t) => {
  const names = Array.from({ length: 30_000 }, (_, n) => `x${n}: 1`)
  for (const yaml of [names.join('\n'), `log: {${names.join()}}`]) {
    t.match(refused({ yaml }), { length: 101, 100: /: 29900 more unknown settings \(sidecar.yaml:1:/ })
  }
})
