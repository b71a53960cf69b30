import t from 'tap'
import { accepted, refused } from './support.ts'

t.test('an empty file, group or list means the defaults', async (t) => {
  for (const yaml of [
    ...['', '# nothing\n', '---\n', 'null', '{}', 'token:\nlisten: {}\n'],
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

t.test('a single empty setting is a problem at its name', async (t) => {
  t.strictSame(refused({ yaml: 'listen:\n  port:\n  host: h\n' }), [
    'listen.port: must be an integer from 0 to 65535 (sidecar.yaml:2:8)',
  ])
})

t.test('a value of the wrong type is refused with the expected type and its location', async (t) => {
  for (const [yaml, problem] of [
    ['listen: { port: "8080" }', /^listen.port: must be an integer from 0 to 65535 \(sidecar.yaml:1:17\)$/],
    ['upgrade: { enabled: yes }', /^upgrade.enabled: must be true or false \(sidecar.yaml:1:21\)$/],
    ['forwarded: { trust: 10.0.0.0/8 }', /^forwarded.trust: must be a list of IP addresses.*:1:21\)$/],
    ['publicRoutes: [GET /x]', /^publicRoutes\[0\]: must be a map such as \{ method: GET.*:1:16\)$/],
    [
      'publicRoutes: [{ method: GET }]',
      /^publicRoutes\[0\].path: is missing; must be an exact path.*:1:16\)$/,
    ],
    ['upstreams: { prefix: /, url: u }', /^upstreams: must be a list; each member must be a map.*:1:12\)$/],
    ['upstreams: [{ prefix: / }]', /^upstreams\[0\].url: is missing; must be http:.*:1:13\)$/],
    ['token: { issuer: 12 }', /^token.issuer: must be text \(in quotes if it looks like a number.*:1:18\)$/],
    ['listen: { tls: { certFile: c } }', /^listen.tls.keyFile: is missing; must be a path.*:1:16\)$/],
    ['credentials: { postgres: { poolSize: 3 } }', /^credentials.postgres.urlFile: is missing;.*:1:26\)$/],
  ] as const) {
    t.match(refused({ yaml, ...(yaml.startsWith('up') && { env: {} }) }), [problem], yaml)
  }
})

t.test('the file must be a map', async (t) => {
  for (const yaml of ['hunter2', '- listen', '42', '"text"']) {
    const problems = refused({ yaml, env: {} })
    t.equal(problems.length, 1, 'nothing is said of settings that seem missing')
    t.match(problems[0], /^: must be a map of settings: listen, .* \(sidecar.yaml:1:1\)$/)
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
      'log."a\\nb": unknown setting; known here: level, audit, access (sidecar.yaml:1:8)',
    ],
    [
      '1: x',
      '1: unknown setting; known here: listen, admin, upstreams, token, keys, credentials, revocations, trustedIssuers, cache, identity, enforcement, forwarded, publicRoutes, forwardAuth, corsPreflight, links, upgrade, limits, timeouts, shutdown, log, workers, contract, cors (sidecar.yaml:1:1)',
    ],
  ]
  for (const [yaml, problem] of table) t.strictSame(refused({ yaml }), [problem], yaml)
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
  const deep = [
    '['.repeat(20_000),
    '{a: '.repeat(20_000),
    '- '.repeat(20_000),
    `${'['.repeat(1e4)}${']'.repeat(1e4)}`,
  ]
  for (const yaml of deep) {
    const problems = refused({ yaml })
    t.equal(problems.length, 1, yaml.slice(0, 5))
    t.match(problems[0], /^: not valid YAML: nested too deeply \(sidecar\.yaml:1:\d+\)$/)
  }
})

t.test('of a map of too many members the first are refused', async (t) => {
  const names = Array.from({ length: 30_000 }, (_, n) => `x${n}: 1`)
  for (const yaml of [names.join('\n'), `log: {${names.join()}}`]) {
    t.match(refused({ yaml }), { length: 100 })
  }
})
