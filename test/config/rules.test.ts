import { readFileSync } from 'node:fs'
import t from 'tap'
import { parse, parseDocument } from 'yaml'
import { settingsFile, withSettingsTable } from '../../scripts/write-docs.ts'
import { configWarnings } from '../../src/config/config.ts'
import { effectiveSettings } from '../../src/config/load.ts'
import { configJsonSchema, SETTINGS, valueAt } from '../../src/config/settings.ts'
import { accepted, refused } from './support.ts'

t.test('keys come from a directory or a URL, and naming the URL alone is enough', async (t) => {
  const loaded = accepted({ yaml: 'keys: { jwksUrl: "http://issuer/keys" }' })
  t.strictSame(loaded.config.keys, { jwksUrl: 'http://issuer/keys', directory: undefined })
  t.equal(loaded.config.credentials.file, undefined, 'a sidecar that only verifies has no credentials')
  t.notOk(effectiveSettings(loaded).some(({ setting }) => /^keys.directory|^credentials/.test(setting)))
  t.strictSame(refused({ yaml: 'keys:\n  jwksUrl: http://issuer/keys\n  directory: keys' }), [
    'keys.jwksUrl: cannot be used with keys.directory (sidecar.yaml:2:12)',
  ])
})

t.test('credentials come from a file or a database, and naming the database alone is enough', async (t) => {
  t.strictSame(accepted({ yaml: 'credentials: { postgres: { urlFile: f } }' }).config.credentials, {
    postgres: { urlFile: 'f', poolSize: 5 },
    file: undefined,
  })
  t.strictSame(refused({ yaml: 'credentials: { file: c, postgres: { urlFile: f } }' }), [
    'credentials.postgres: cannot be used with credentials.file (sidecar.yaml:1:35)',
  ])
})

t.test('a verify-only sidecar accepts no credentials file', async (t) => {
  const why = 'cannot be used with keys.jwksUrl: such a sidecar only verifies and issues no tokens'
  const flags = { '--keys-jwks-url': 'http://issuer/keys' }
  t.strictSame(refused({ yaml: 'credentials: { file: c }', flags }), [
    `credentials.file: ${why} (sidecar.yaml:1:22)`,
  ])
  const { credentials } = accepted({ yaml: 'credentials: { postgres: { urlFile: f } }', flags }).config
  t.match(credentials, { file: undefined, postgres: { urlFile: 'f' } })
})

t.test('a feed needs followers that can prove themselves, and a store of its own', async (t) => {
  t.match(accepted({ yaml: 'feed: { enabled: true, tokenFile: f }' }).config.feed, {
    subjects: [],
    maxFollowers: 20000,
  })
  t.match(accepted({ yaml: 'feed: { enabled: true, subjects: [a] }' }).config.feed, { tokenFile: '' })
  const noFollower = 'feed.enabled: needs feed.tokenFile or feed.subjects: nobody could follow'
  t.strictSame(refused({ yaml: 'feed: { enabled: true }' }), [`${noFollower} (sidecar.yaml:1:18)`])
  const flags = { '--keys-jwks-url': 'http://issuer/keys' }
  const noStore = 'feed.enabled: needs a store of its own: a key directory with credentials, or a database'
  const feed = 'feed: { enabled: true, tokenFile: f }'
  t.strictSame(refused({ yaml: feed, flags }), [`${noStore} (sidecar.yaml:1:18)`])
  accepted({ yaml: `${feed}\ncredentials: { postgres: { urlFile: u } }`, flags })
  accepted({ yaml: 'feed: { enabled: false, tokenFile: f }', flags })
})

t.test('each trusted issuer is complete, named once, and maps values to accounts in one way', async (t) => {
  const good = 'issuer: https://a, jwksUrl: https://a/keys, audience: x'
  const entry = (text: string) => `trustedIssuers:\n  - { ${text} }`
  t.match(accepted({ yaml: entry(`${good}, accounts: { s: acme }`) }).config.trustedIssuers, [
    { algorithms: ['RS256', 'ES256'], accessKeyClaim: 'sub', requiredClaims: {}, maxLifetimeSeconds: 86400 },
  ])
  const both = 'must be set, or accountPrefix, and not both'
  const table: readonly (readonly [string, string])[] = [
    [good, `accounts: ${both}`],
    [`${good}, accountPrefix: p, accounts: { s: acme }`, `accounts: ${both}`],
    ['jwksUrl: https://a/keys, audience: x, accountPrefix: p', 'issuer: is missing'],
    ['issuer: i, jwksUrl: https://a/keys, accountPrefix: p', 'audience: is missing'],
    [`${good}, accounts: { s: 7 }`, 'accounts.s: must be a string: quote it'],
    [`${good}, accounts: { s: acme, __proto__: acme }`, 'accounts: must not contain __proto__'],
    [
      `${good}, accountPrefix: p, requiredClaims: { __proto__: a }`,
      'requiredClaims: must not contain __proto__',
    ],
    [`${good}, accounts: { s: "" }`, 'accounts.s: must be 1 to 1024 characters'],
    [`${good}, accounts: s`, 'accounts: must be a map'],
    [`${good}, accountPrefix: p, algorithms: [HS256]`, 'algorithms[0]: must be one of: ES256'],
    [`${good}, accountPrefix: p, algorithms: []`, 'algorithms: must have at least one'],
    [`${good}, accountPrefix: p, maxLifetimeSeconds: 0`, 'maxLifetimeSeconds: must be an integer'],
    [`${good}, accountPrefix: p, requiredClaims: { a: [] }`, 'requiredClaims.a: must be a map from claims'],
    [`${good}, accountPrefix: p, audiences: x`, 'audiences: unknown setting; known here: issuer, '],
    ['issuer: i, audience: x, accountPrefix: p, jwksUrl: http://a, caFile: f', 'caFile: needs a jwksUrl'],
  ]
  for (const [text, problem] of table) {
    const [first = '', ...others] = refused({ yaml: entry(text) })
    t.same(others, [], text)
    t.ok(first.startsWith(`trustedIssuers[0].${problem}`), first)
  }
  const own = entry('issuer: storage-account-api, jwksUrl: https://a, audience: x, accountPrefix: p')
  const once = 'is token.issuer, or that of an entry before it'
  t.strictSame(refused({ yaml: own }), [`trustedIssuers[0].issuer: ${once} (sidecar.yaml:2:15)`])
  const twice = `${entry(`${good}, accountPrefix: p`)}\n  - { ${good}, accountPrefix: q }`
  t.strictSame(refused({ yaml: twice }), [`trustedIssuers[1].issuer: ${once} (sidecar.yaml:3:15)`])
  const prefixed = (first: string, second: string) =>
    `${entry(`${good}, accountPrefix: '${first}'`)}\n  - { ${good.replace('issuer: ', 'issuer: other-')}, accountPrefix: '${second}' }`
  const nested = 'begins with that of another entry, which reaches its accounts'
  for (const [first, second, index] of [
    ['idp:', 'idp:eu:', 1],
    ['idp:eu:', 'idp:', 0],
  ] as const) {
    t.match(refused({ yaml: prefixed(first, second) }), [`trustedIssuers[${index}].accountPrefix: ${nested}`])
  }
  accepted({ yaml: prefixed('idp:', 'idp:') })
  t.match(refused({ yaml: 'keys: { jwksUrl: http://a, caFile: f }' }), [/^keys.caFile: needs a keys.jwksUrl/])
})

t.test('the longest accepted lifetime is at least that of issued tokens', async (t) => {
  const longest = (yaml: string) => accepted({ yaml }).config.token.maxLifetimeSeconds
  t.equal(longest('token: { lifetimeSeconds: 60 }'), 86400)
  t.equal(longest('token: { lifetimeSeconds: 90000 }'), 90000)
  t.equal(longest('token: { lifetimeSeconds: 60, maxLifetimeSeconds: 60 }'), 60)
  t.match(refused({ flags: { '--token-max-lifetime-seconds': '86399' } }), [
    /^token.maxLifetimeSeconds: must be at least token.lifetimeSeconds \(86400\): .* \(--token-max-lifetime-seconds\)$/,
  ])
})

t.test('a key is needed as long as tokens, and as links of tokens by other issuers', async (t) => {
  const issuer = 'issuer: https://a, jwksUrl: https://a/k, audience: x, accountPrefix: p'
  const rest = `token: { clockToleranceSeconds: 5 }\ntrustedIssuers: [{ ${issuer}, maxLifetimeSeconds: 300000 }]`
  const need = (links: string) => accepted({ yaml: `${rest}\nlinks: ${links}` }).config.token.maxSignedSeconds
  t.equal(need('{}'), 86405)
  t.equal(need('{ enabled: true }'), 300005)
  t.equal(need('{ enabled: true, maxLifetimeSeconds: 200000 }'), 200005)
})

t.test('HTTP Basic needs credentials, seconds in bounds, and a realm that needs no escapes', async (t) => {
  const jwks = 'keys: { jwksUrl: https://a/k }'
  const problem = 'basic.enabled: needs credentials: with keys.jwksUrl, those of credentials.postgres'
  t.strictSame(refused({ yaml: `${jwks}\nbasic: { enabled: true }` }), [`${problem} (sidecar.yaml:2:19)`])
  accepted({ yaml: `${jwks}\nbasic: { enabled: true }\ncredentials: { postgres: { urlFile: /u } }` })
  accepted({ yaml: `${jwks}\nbasic: { enabled: false }` })
  const feed = 'credentials: { feed: { url: https://a/feed, tokenFile: /t } }'
  t.strictSame(refused({ yaml: `${jwks}\nbasic: { enabled: true }\n${feed}` }), [
    `${problem} (sidecar.yaml:2:19)`,
  ])
  for (const members of ['cacheSeconds: 0', 'cacheSeconds: 86401', 'realm: ""', `realm: 'a"b'`, 'realm: é']) {
    const setting = `basic.${members.slice(0, members.indexOf(':'))}`
    t.match(refused({ yaml: `basic: { ${members} }` }), [new RegExp(`^${setting}: must be `)], members)
  }
  accepted({ yaml: 'basic: { enabled: true, realm: My storage, cacheSeconds: 86400 }' })
})

t.test('HTTP Basic without TLS is a warning', async (t) => {
  const warnings = (yaml: string) => configWarnings(accepted({ yaml }).config)
  t.match(warnings('basic: { enabled: true }'), [/^basic\.enabled: .*without TLS/])
  t.strictSame(warnings('basic: { enabled: false }'), [])
  t.strictSame(
    warnings('basic: { enabled: true }\nlisten: { tls: { certFile: /c.pem, keyFile: /k.pem } }'),
    [],
  )
})

t.test('a public route is not the token endpoint, under any base path', async (t) => {
  const route = (path: string, basePath: string) =>
    refused({
      yaml: `listen: { basePath: "${basePath}" }\npublicRoutes:\n- { method: GET, path: /x }\n- { method: GET, path: ${path} }`,
    })
  const problem =
    'publicRoutes[1].path: must not be the token endpoint, which is never forwarded (sidecar.yaml:4:24)'
  t.strictSame(route('/v2/auth/token', ''), [problem])
  t.strictSame(route('/v2/auth/token/', ''), [problem])
  t.strictSame(route('/api/v2/auth/token', '/api'), [problem])
  t.strictSame(route('/v2/auth/token', '/api'), [])
  t.strictSame(route('/v2/auth/tokens', ''), [])
})

t.test(
  'the paths of OAuth are no other endpoint, no public route and not below that of forward auth',
  async (t) => {
    const issuer = 'token: { issuer: https://auth.example }'
    const logout = 'contract: { logout: true }\ncredentials: { postgres: { urlFile: f } }'
    const at = (yaml: string, oauth = 'enabled: true') =>
      refused({ yaml: `oauth: { ${oauth} }\n${yaml}` }).map((problem) => problem.replace(/:.*/, ''))
    t.strictSame(accepted({ yaml: 'listen: { basePath: /api }' }).config.oauth, {
      enabled: false,
      tokenPaths: ['/api/v2/oauth/token'],
      ignoredScopes: [],
    })
    const paths = (...list: string[]) => `enabled: true, tokenPaths: [${list.join(', ')}]`
    const only = ['oauth.tokenPaths[1]']
    t.strictSame(at('', paths('/a', '/v1/oauth/tokens')), [])
    t.strictSame(at('', paths('/a', '/a')), only, 'twice')
    t.strictSame(at('', paths('/a', '/v2/auth/token')), only)
    t.strictSame(at('', paths('/a', '/v2/auth/token/')), only)
    t.strictSame(at('', paths('/a', '/v2/auth/links/x')), [], 'links are off')
    t.strictSame(at('links: { enabled: true }', paths('/a', '/v2/auth/links/x')), only)
    t.strictSame(at('', paths('/a', '/v2/oauth/revoke')), [], 'logout is off')
    t.strictSame(at(logout, paths('/a', '/v2/oauth/revoke')), only)
    t.strictSame(at('', paths('/a', '/.well-known/jwks.json')), [], 'the issuer is no URL')
    t.strictSame(at(issuer, paths('/a', '/.well-known/jwks.json')), only)
    t.strictSame(at('forwardAuth: { path: /v2 }').slice(0, 1), ['forwardAuth.path'])
    t.strictSame(at('forwardAuth: { path: /v2/oauth }'), ['forwardAuth.path'])
    t.strictSame(at('forwardAuth: { path: /v2/oauth/token }'), ['forwardAuth.path'])
    t.strictSame(at('forwardAuth: { path: /v2/oauth/token/x }'), [])
    t.strictSame(at(`forwardAuth: { path: /.well-known }\n${issuer}`), ['forwardAuth.path'])
    t.strictSame(at('forwardAuth: { path: /v2/oauth }', 'enabled: false'), [])
    const route = (path: string) => `publicRoutes: [{ method: GET, path: ${path} }]`
    t.strictSame(at(route('/v2/oauth/token')), ['publicRoutes[0].path'])
    t.strictSame(at(route('/v2/oauth/token'), 'enabled: false'), [])
    t.strictSame(at(`${route('/.well-known/oauth-authorization-server')}\n${issuer}`), [
      'publicRoutes[0].path',
    ])
    t.strictSame(
      refused({ yaml: 'oauth: { enabled: true }', flags: { '--keys-jwks-url': 'http://issuer/keys' } }),
      [
        'oauth.enabled: cannot be used with keys.jwksUrl: such a sidecar only verifies and issues no tokens (sidecar.yaml:1:19)',
      ],
    )
    for (const path of ['a', '/a?b', '/a#b', '/a b', '/a*', '/é', '']) {
      t.strictSame(at('', paths(`'${path}'`)), ['oauth.tokenPaths[0]'], path)
    }
    for (const word of ['', 'a b', 'storage.read:/', 'é', 'a"b']) {
      t.strictSame(at('', `ignoredScopes: ['${word}']`), ['oauth.ignoredScopes[0]'], word)
    }
    t.strictSame(
      accepted({ env: { SIDECAR_UPSTREAM_URL: 'http://a', SIDECAR_OAUTH_TOKEN_PATHS: '["/x"]' } }).config
        .oauth.tokenPaths,
      ['/x'],
    )
  },
)

t.test('with links, their paths are no public route and not that of forward auth', async (t) => {
  const at = (path: string, enabled = true) =>
    refused({
      yaml: `links: { enabled: ${enabled} }\nforwardAuth: { path: ${path} }\npublicRoutes: [{ method: GET, path: ${path} }]`,
    }).map((problem) => problem.slice(0, problem.indexOf(':')))
  for (const path of ['/v2/auth/links', '/v2/auth/links/x']) {
    t.strictSame(at(path), ['forwardAuth.path', 'publicRoutes[0].path'], path)
  }
  t.strictSame(at('/v2/auth/links', false), ['publicRoutes[0].path'], 'that of forward auth')
})

t.test('the forward-auth path is neither the token endpoint nor above or below it', async (t) => {
  const path = (path: string, basePath = '') =>
    refused({ yaml: `listen: { basePath: "${basePath}" }\nforwardAuth: { path: ${path} }` })
  const problem = (endpoint: string) => [
    `forwardAuth.path: must not be the token endpoint ${endpoint}, a path above it or one below it (sidecar.yaml:2:22)`,
  ]
  for (const collision of ['/v2/auth/token', '/v2/auth/token/x', '/v2/auth', '/v2']) {
    t.strictSame(path(collision), problem('/v2/auth/token'), collision)
  }
  t.strictSame(path('/api', '/api'), problem('/api/v2/auth/token'))
  for (const fine of ['/_auth', '/v2/auth/tokens', '/v2/auth/check']) {
    t.strictSame(path(fine), [], fine)
  }
  t.strictSame(path('/v2', '/api'), [])
  t.strictSame(
    refused({ yaml: 'forwardAuth: { path: /_auth }\npublicRoutes:\n- { method: GET, path: /_auth/x }' }),
    [
      'publicRoutes[0].path: must not be at or below forwardAuth.path, which is never forwarded (sidecar.yaml:3:24)',
    ],
  )
  t.strictSame(refused({ env: {}, yaml: 'forwardAuth: { path: /_auth }' }), [], 'needs no upstream')
})

t.test('an assertion needs a signing key and a distinct audience', async (t) => {
  const yaml = 'identity: { assertion: { enabled: true, audience: storage-api } }'
  t.strictSame(refused({ yaml, flags: { '--keys-jwks-url': 'http://issuer/keys' } }), [
    'identity.assertion.enabled: cannot be used with keys.jwksUrl: an assertion needs a key that signs (sidecar.yaml:1:35)',
    'identity.assertion.audience: must differ from token.audience: an assertion is not an access token (sidecar.yaml:1:51)',
  ])
  t.strictSame(refused({ yaml: 'identity: { assertion: { enabled: true } }' }), [])
})

t.test('the two listeners do not share a port', async (t) => {
  const both = (one: string, other: string, port = 8080) =>
    refused({ yaml: `listen: { host: "${one}", port: ${port} }\nadmin: { host: "${other}", port: ${port} }` })
      .length
  for (const host of ['0.0.0.0', '127.0.0.1', '::']) {
    t.equal(both(host, '127.0.0.1'), 1, host)
  }
  t.equal(both('127.0.0.1', '127.0.0.2'), 0)
  t.equal(both('127.0.0.1', '::1'), 0)
  t.equal(both('0.0.0.0', '0.0.0.0', 0), 0, 'the system chooses two ports')
  t.strictSame(refused({ flags: { '--listen-port': '8081' } }), [
    'admin.port: must be another port than listen.port (default)',
  ])
})

t.test('a rule across settings ignores settings that are already invalid', async (t) => {
  t.equal(refused({ yaml: 'token: { lifetimeSeconds: x, maxLifetimeSeconds: 5 }' }).length, 1)
  t.equal(refused({ yaml: 'upstreams: 1', env: {} }).length, 1)
})

const one = (upstream: object) => ({ env: { SIDECAR_UPSTREAMS: JSON.stringify([upstream]) } })
const at = (url: string) => refused(one({ prefix: '/', url }))

t.test('an address is a scheme, a host and an optional port, or a socket', async (t) => {
  for (const url of [
    'http://127.0.0.1:9000',
    'http://storage',
    'http://storage/',
    'HTTPS://Storage.example:443/',
    'http://[::1]:9000',
    'http://my_service:1',
    'http://bücher.example:65535',
    'unix:/run/storage/api.sock',
    `unix:/${'s'.repeat(106)}`,
  ]) {
    t.strictSame(at(url), [], url)
  }
  t.equal(accepted(one({ prefix: '/', url: 'http://storage/' })).config.upstreams[0]?.url, 'http://storage/')
})

t.test('an address with unused or missing parts is refused', async (t) => {
  for (const url of [
    '',
    'storage:9000',
    'ftp://h',
    'http:h',
    'http:/h',
    'http://',
    'http://:80',
    'http://h:0',
    'http://h:',
    'http://h:65536',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an unexpanded template
    'http://${HOST}:80',
    'http://a,b:80',
    'http://user@h',
    'http://user:hunter2@h',
    'http://@h',
    'http://h?x',
    'http://h/a?x',
    'http://h/#',
    ' http://h',
    'http://h\n',
    'http://h\\x',
    'unix:relative.sock',
    'unix:',
    'unix:/',
    'unix:///run/x.sock',
    'unix:/run/',
    'unix:/run/x?y',
    'unix:/a b',
    `unix:/${'s'.repeat(107)}`,
    `unix:/${'é'.repeat(54)}`,
    'http://h/base',
    'https://h:1/a/b/',
    'http://h//',
  ]) {
    t.match(at(url), [/^upstreams\[0\].url: must be http:.* without a user name, path below the host/], url)
    t.notMatch(at(url), /hunter2/)
  }
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

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const STALE = 'run: npm run docs'

t.test('docs/configuration.md contains the table of settings', async (t) => {
  const page = read('docs/configuration.md')
  t.equal(page, withSettingsTable(page), STALE)
})

t.test('config/sidecar.schema.json is what `config schema` prints', async (t) => {
  t.equal(read('config/sidecar.schema.json'), configJsonSchema(), STALE)
  const schema = JSON.parse(configJsonSchema())
  t.match(schema, {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    additionalProperties: false,
    properties: {
      listen: { additionalProperties: false, properties: { port: { type: 'integer', maximum: 65535 } } },
    },
  })
  t.notOk(schema.required, 'no group has to be given')
})

t.test('config/sidecar.yaml is generated, loads and sets every setting to its default', async (t) => {
  const yaml = read('config/sidecar.yaml')
  t.equal(yaml, settingsFile(), STALE)
  const { config } = accepted({ yaml, env: {} })
  t.strictSame(config, accepted({}).config)
  // With the commented settings uncommented, no setting is missing.
  const all = parseDocument(yaml.replace(/^ *(?:# *)+(?=\w+:(?: |$))/gm, (mark) => mark.replaceAll('# ', '')))
  t.strictSame(all.errors, [])
  for (const { path, steps } of SETTINGS) {
    t.not(valueAt(all.toJS(), steps), undefined, path)
  }
})

t.test('the examples of credentials and revocations have the documented shape', async (t) => {
  t.match(parse(read('config/credentials.example.yaml')), {
    accounts: [
      {
        accountId: String,
        credentials: [{ accessKey: String, secretHash: /^\$sha256\$[A-Za-z0-9+/]{43}$/ }],
      },
    ],
  })
  t.match(parse(read('config/revocations.example.yaml')), {
    revocations: [{ jti: String }, { accountId: String, issuedBefore: /^\d{4}-.*Z$/ }, { accessKey: String }],
  })
})
