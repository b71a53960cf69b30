/**
 * examples/forward-auth with the real programs: each of them asks a sidecar and forwards
 * to a recording upstream. ENVOY, CADDY and TRAEFIK name a program that is not in PATH.
 */
import { spawn } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isMap, isScalar, parseAllDocuments, visit } from 'yaml'
import { ERRORS } from '../../src/base/errors.ts'
import { JUDGED_HEADERS, SECOND_RESOURCE_WORDS } from '../../src/http/headers.ts'
import { basicValue } from '../support/basic.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { limitsFile } from '../support/limited-setup.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { rawRequest } from '../support/raw-client.ts'
import { OK, type RecordedRequest, recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const LOGIN_FAILURES = 3

/** The longest time that the cached example keeps a decision. */
const MAX_AGE_SECONDS = 2

/** A pattern of Envoy's `allowed_headers`. */
interface AllowedHeader {
  readonly exact?: string
  readonly safe_regex?: { readonly regex: string }
}

interface Proxy {
  readonly name: string
  readonly example: string
  readonly command: string
  /** The arguments; the example, with the ports of the test, is at `file`. */
  readonly args: (file: string, directory: string) => readonly string[]
  /** Turns the example's text into a complete configuration. */
  readonly complete?: (text: string) => string
  /** The part of the example that report mode must not have. */
  readonly removesAuthorization: string
  readonly refusedStatus: 400 | 401
  readonly caches?: boolean
  /** It has no way to send a body of its own. */
  readonly failsPlainly?: boolean
}

const nginx: Omit<Proxy, 'name'> = {
  example: 'nginx.conf',
  command: '/usr/sbin/nginx',
  args: (file, directory) => ['-p', directory, '-e', 'stderr', '-g', 'daemon off;', '-c', file],
  complete: (text) => {
    const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    const paths = kinds.map((kind) => `${kind}_temp_path ${kind};`).join(' ')
    return `pid nginx.pid;\nevents {}\nhttp { access_log off; ${paths}\n${text}}\n`
  },
  removesAuthorization: 'proxy_set_header Authorization "";',
  refusedStatus: 401,
}

const PROXIES: readonly Proxy[] = [
  { ...nginx, name: 'nginx' },
  {
    ...nginx,
    name: 'nginx with proxy_cache',
    complete: (text) =>
      nginx.complete?.(text.replaceAll('#cache ', '').replace('/dev/shm/storage-auth', 'decisions')) ?? '',
    caches: true,
  },
  {
    name: 'Envoy',
    example: 'envoy.yaml',
    command: process.env['ENVOY'] ?? 'envoy',
    args: (file) => ['-c', file, '--use-dynamic-base-id', '--log-level', 'error', '--concurrency', '1'],
    removesAuthorization: ', authorization',
    refusedStatus: 400,
  },
  {
    name: 'Caddy',
    example: 'Caddyfile',
    command: process.env['CADDY'] ?? 'caddy',
    args: (file) => ['run', '--adapter', 'caddyfile', '--config', file],
    removesAuthorization: 'request_header -Authorization',
    refusedStatus: 400,
  },
  {
    name: 'Traefik',
    example: 'traefik-dynamic.yaml',
    command: process.env['TRAEFIK'] ?? 'traefik',
    args: (file) => [
      '--entryPoints.web.address=127.0.0.1:8000',
      '--entryPoints.web.http.sanitizePath=false',
      '--global.checkNewVersion=false',
      `--providers.file.filename=${file}`,
    ],
    removesAuthorization: ', without-token',
    refusedStatus: 400,
    failsPlainly: true,
  },
]

const HEADERS = ['account-id', 'access-key', 'token-id', 'token-expires', 'scope', 'assertion'].map(
  (name) => `x-authenticated-${name}`,
)

/** Of an unrestricted token. */
const SENT = HEADERS.filter((name) => !name.endsWith('scope')).toSorted()

for (const proxy of PROXIES) {
  t.test(`${proxy.name} requests decisions`, { skip: without(proxy.command) }, async (t) => {
    const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
    writeFileSync(revocations, 'revocations: []\n')
    const start = async (settings: Record<string, string> = {}, omitted = '') => {
      const upstream = await recordingUpstream(t)
      const sidecar = await startSidecar(t, {
        settings: {
          'forward-auth-path': '/_auth',
          'forward-auth-max-age-seconds': String(proxy.caches ? MAX_AGE_SECONDS : 0),
          'contract-refused-token-status': String(proxy.refusedStatus),
          'forwarded-trust': '127.0.0.1',
          'limits-login-failures-count': String(LOGIN_FAILURES),
          'revocations-file': revocations,
          ...settings,
        },
      })
      const port = await startProxy(t, proxy, sidecar.port, upstream.port, omitted)
      const ask = (
        head: string,
        lines: readonly string[] = [],
        body = '',
        from = '127.0.0.1',
        host = 'storage.example',
      ) => {
        const text = [`${head} HTTP/1.1`, `Host: ${host}`, ...lines, '', body].join('\r\n')
        return rawRequest(t, port, text, { from })
      }
      const decisions = () => sidecar.log.filter(({ route }) => route === 'forward_auth')
      return { upstream, sidecar, ask, decisions }
    }
    const { upstream, sidecar, ask, decisions } = await start({ 'identity-assertion-enabled': 'true' })
    const bearer = (token: string) => `Authorization: Bearer ${token}`

    await t.test('a request reaches the service with identity and body', async (t) => {
      const body = 'x'.repeat(100_000)
      const lines = [bearer(sidecar.token), `Content-Length: ${body.length}`]
      const response = await ask('PUT /a//b%2Fc?d=%20', lines, body)
      t.match(response, { status: 200, body: Buffer.from('ok') })
      const request = upstream.requests.at(-1)
      t.match(request, { method: 'PUT', headers: { 'x-authenticated-account-id': 'acme' } })
      t.match(request?.headers, { 'x-authenticated-assertion': /^[\w-]+\.[\w-]+\.[\w-]+$/ })
      t.equal(request?.target, '/a//b%2Fc?d=%20', 'the target is not normalized')
      t.equal(request?.headers['authorization'], undefined, 'the token stays outside')
      t.equal(request?.body.toString(), body)
      t.strictSame(namesLike(request), SENT)
      await eventually(() => decisions().at(-1)?.['status'] === 200, 'the line of the log')
      t.match(decisions().at(-1), { status: 200, bytesIn: 0, method: 'PUT', path: '/a//b%2Fc' })
    })

    await t.test('identity headers of a client do not reach the service', async (t) => {
      const spoofed = HEADERS.flatMap((name) => [
        `${name}: forged`,
        `${name.replaceAll('-', '_').toUpperCase()}: forged`,
        `${name.replace('-', '_')}: forged`,
        `${name.replace(/-(?=[a-z]+$)/, '_')}: forged`,
        `${name.replaceAll('-', '.')}: forged`,
      ])
      for (const lines of [spoofed, [...spoofed, `Connection: ${HEADERS[0]}`]]) {
        const before = upstream.requests.length
        const response = await ask('GET /spoofed', [bearer(sidecar.token), ...lines])
        const request = upstream.requests[before]
        t.equal(request?.rawHeaders.includes('forged') ?? false, false)
        if (response.status === 200) {
          t.strictSame(namesLike(request), SENT)
        } else {
          t.equal(request, undefined)
        }
      }
      t.match(await ask('GET /spoofed', [bearer(sidecar.token), ...spoofed]), { status: 200 })
    })

    await t.test('a refusal reaches the client as documented, and nothing the service', async (t) => {
      const before = upstream.requests.length
      const expired = await sidecar.mint({ now: Date.now() - 7_200_000, lifetimeSeconds: 3600 })
      for (const [lines, code, challenge] of [
        [[], 'InvalidToken', 'Bearer realm="storage"'],
        [[bearer('a.b.c')], 'InvalidToken', 'Bearer realm="storage", error="invalid_token"'],
        [[bearer(expired)], 'ExpiredToken', 'Bearer realm="storage", error="invalid_token"'],
      ] as const) {
        const { status, headers, body } = await ask('PUT /a', [...lines, 'Content-Length: 3'], 'abc')
        t.match(
          { status, headers, body: JSON.parse(body.toString()) },
          {
            status: proxy.refusedStatus,
            headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
            body: { code, message: code === 'ExpiredToken' ? 'Token expired.' : 'Token is not valid.' },
          },
        )
        t.ok(headers['x-request-id'], 'it can be found in the log')
        t.equal(headers['www-authenticate'], proxy.refusedStatus === 401 ? challenge : undefined)
      }
      t.equal(upstream.requests.length, before)
    })

    await t.test('HTTP Basic is a login of the client, which is refused as documented', async (t) => {
      const { upstream, sidecar, ask } = await start({ 'basic-enabled': 'true' })
      const [login] = sidecar.logins
      const basic = (secret = '') => `Authorization: ${basicValue(String(login?.accessKey), secret)}`
      t.equal((await ask('GET /a', [basic(login?.secret)])).status, 200)
      t.match(upstream.requests[0]?.headers, { 'x-authenticated-account-id': 'acme' })
      t.equal(upstream.requests[0]?.headers['authorization'], undefined)
      const failed = async (lines: readonly string[], address?: string) => {
        const { status, headers, body } = await ask('GET /a', lines, '', address)
        return { status, challenge: headers['www-authenticate'], ...JSON.parse(body.toString()) }
      }
      const refused = { status: 401, challenge: 'Basic realm="storage", charset="UTF-8"' }
      t.match(await failed([]), { ...refused, code: 'InvalidToken' })
      for (let count = 0; count < LOGIN_FAILURES; count++) {
        const { code, message } = ERRORS.basicAuthenticationFailed
        t.match(await failed([basic('wrong')], '127.0.0.2'), { ...refused, code, message })
      }
      t.match(await failed([basic('wrong')], '127.0.0.2'), { status: 503, code: 'ServiceNotReady' })
      t.match(await failed([basic('wrong')], '127.0.0.3'), { status: 401 }, 'another client')
      t.equal(upstream.requests.length, 1)
    })

    await t.test('a request is judged by the scope of its token', async (t) => {
      const scope = 'storage.read:/a storage.modify:/a/w storage.create:/a/new'
      const token = bearer(await sidecar.mint({ claims: { scope } }))
      const to = (path: string) => `Destination: ${path}`
      for (const [head, ...lines] of [
        ['GET /a/x'],
        ['MOVE /a/w/x', to('http://storage.example/a/w/y')],
        ['PUT /a/w/x', 'X-Amz-Copy-Source: a/x'],
        ['PUT /a/new/x', 'If-None-Match: *'],
      ] as const) {
        const before = upstream.requests.length
        t.match(await ask(head, [token, ...lines]), { status: 200 }, head)
        t.match(upstream.requests[before]?.headers, { 'x-authenticated-scope': scope })
      }
      const before = upstream.requests.length
      for (const [head, ...lines] of [
        ['GET /b'],
        ['DELETE /a/x'],
        ['MOVE /a/w/x', to('http://storage.example/b/y')],
        ['MOVE /a/w/x', to('http://other.example/a/w/y')],
        ['MOVE /a/w/x', to('/a/w/y'), to('/b/y')],
        ['PUT /a/w/x', 'X-Amz-Copy-Source: b/x'],
        ['PUT /a/w/x', 'X-Amz-Copy-Source: a/x', 'X-Amz-Copy-Source: b/x'],
        ['PUT /a/w/x', 'X-Ms-Copy-Source: http://storage.example/b/x'],
        ['GET /a/x', 'X-HTTP-Method-Override: DELETE'],
        ['DELETE /a/x', 'X-Forwarded-Method: GET', 'X-Original-Method: GET'],
        ['GET /b', 'X-Forwarded-Uri: /a', 'X-Original-URI: /a'],
        ['GET /a/x', 'X-Original-URL: /b'],
        ['GET /a/x', 'X-Rewrite-Path: /b'],
        ['PUT /a/w/x', 'X-Oss-Symlink-Target: b/x'],
        ['PUT /a/w/x', 'Source: https://other.example/b'],
        ['PUT /a/new/x', 'If-None-Match: *', 'X-Amz-Acl: public-read'],
        ['PUT /a/new/x', 'If-None-Match: *', 'X-Container-Read: .r:*'],
      ] as const) {
        const { status, body } = await ask(head, [token, ...lines])
        t.match(
          { status, ...JSON.parse(body.toString()) },
          { status: 403, code: 'AccessDenied' },
          lines.join() || head,
        )
      }
      t.equal(upstream.requests.length, before)
    })

    await t.test('the paths of a scope hold at the listed hosts alone', async (t) => {
      const { upstream, sidecar, ask } = await start({ 'scopes-hosts': 'storage.example' })
      const token = bearer(await sidecar.mint({ claims: { scope: 'storage.read:/a' } }))
      t.match(await ask('GET /a', [token]), { status: 200 })
      const before = upstream.requests.length
      for (const lines of [[], ['X-Forwarded-Host: storage.example'], ['Forwarded: host=storage.example']]) {
        const { status, body } = await ask(
          'GET /a',
          [token, ...lines],
          '',
          undefined,
          'bucket.storage.example',
        )
        t.match(
          { status, ...JSON.parse(body.toString()) },
          { status: 403, code: 'AccessDenied' },
          lines.join(),
        )
      }
      t.equal(upstream.requests.length, before)
    })

    await t.test('an account over its limit gets the 429 of the sidecar', async (t) => {
      const limits = await limitsFile(t, 'default: { requestsPerSecond: 0.001, burst: 1 }')
      const { upstream, sidecar, ask } = await start({ 'fair-use-file': limits })
      // Two tokens: the decision on the first one may be cached.
      const first = await sidecar.mint()
      const second = await sidecar.mint()
      t.equal((await ask('GET /a', [bearer(first)])).status, 200)
      const { status, headers, body } = await ask('PUT /a', [bearer(second), 'Content-Length: 3'], 'abc')
      t.match(
        { status, headers, body: JSON.parse(body.toString()) },
        {
          status: 429,
          headers: {
            'content-type': 'application/json',
            'cache-control': 'no-store',
            'retry-after': /^(1000|99\d)$/,
            ratelimit: /^"requests";r=0;t=(1000|99\d)$/,
            'ratelimit-policy': '"requests";q=1;w=1000',
            'proxy-status': /details="fair_use"/,
          },
          body: { code: 'TooManyRequests', message: ERRORS.tooManyRequests.message },
        },
      )
      t.equal(upstream.requests.length, 1)
    })

    await t.test('the token endpoint is served by the sidecar', async (t) => {
      const body = JSON.stringify(sidecar.logins[0])
      const lines = ['Content-Type: application/json', `Content-Length: ${body.length}`]
      for (const path of ['/v2/auth/token', '/v2/auth/token/']) {
        const { status, body: issued } = await ask(`POST ${path}`, lines, body)
        t.equal(status, 200)
        const { token } = JSON.parse(issued.toString())
        t.equal((await ask('GET /a', [bearer(token)])).status, 200)
        t.equal((await ask(`GET ${path}`, [bearer(token)])).status, 200)
      }
    })

    await t.test('failed logins of one client address do not throttle another', async (t) => {
      const logIn = async (login: object, address: string, lines: readonly string[] = []) => {
        const body = JSON.stringify(login)
        const head = ['Content-Type: application/json', `Content-Length: ${body.length}`, ...lines]
        return (await ask('POST /v2/auth/token', head, body, address)).status
      }
      const [login] = sidecar.logins
      const wrong = { ...login, secret: 'wrong' }
      const statuses: number[] = []
      for (let count = 0; count < LOGIN_FAILURES; count++) {
        statuses.push(await logIn(wrong, '127.0.0.2'))
      }
      t.strictSame(statuses, Array(LOGIN_FAILURES).fill(403))
      t.equal(await logIn({ ...login }, '127.0.0.2'), 503)
      t.equal(await logIn({ ...login }, '127.0.0.2', ['X-Forwarded-For: 192.0.2.1']), 503, 'it is ignored')
      t.equal(await logIn({ ...login }, '127.0.0.3'), 200)
    })

    await t.test('a cached decision is not requested again', { skip: !proxy.caches }, async (t) => {
      const token = await sidecar.mint({ lifetimeSeconds: 3600 })
      const before = decisions().length
      for (let count = 0; count < 10; count++) {
        await ask('GET /a', [bearer(token)])
      }
      t.ok(decisions().length - before < 5)
      t.match(upstream.requests.at(-1), { headers: { 'x-authenticated-account-id': 'acme' } })
      const short = await sidecar.mint({ lifetimeSeconds: 1 })
      await ask('GET /a', [bearer(short)])
      await eventually(async () => (await ask('GET /a', [bearer(short)])).status === 401, 'its end')
    })

    await t.test('a revoked token is refused', async (t) => {
      const token = await sidecar.mint({ claims: { jti: 'stolen' } })
      t.equal((await ask('GET /a', [bearer(token)])).status, 200)
      writeFileSync(revocations, 'revocations: [{ jti: stolen }]\n')
      const direct = () =>
        fetch(`http://127.0.0.1:${sidecar.port}/_auth`, { headers: { authorization: `Bearer ${token}` } })
      await eventually(async () => (await direct()).status !== 200, 'the revocation')
      const refused = async () => (await ask('GET /a', [bearer(token)])).status === proxy.refusedStatus
      if (!proxy.caches) {
        t.ok(await refused(), 'at once')
      } else {
        await eventually(refused, 'the cached decision to end', MAX_AGE_SECONDS * 1000 + SOON_MS)
      }
    })

    await t.test(
      'report mode removes forged identities, and leaves Authorization to the service',
      async (t) => {
        const { upstream, ask } = await start({ enforcement: 'report' }, proxy.removesAuthorization)
        upstream.reply(OK)
        const forged = HEADERS.map((name) => `${name}: forged`)
        t.equal((await ask('GET /a', [...forged, 'Authorization: Basic b2xk'])).status, 200)
        t.strictSame(namesLike(upstream.requests.at(-1)), [])
        t.match(upstream.requests.at(-1), { headers: { authorization: 'Basic b2xk' } })
      },
    )

    await t.test('no request passes while the sidecar is down', async (t) => {
      const before = upstream.requests.length
      const token = await sidecar.mint()
      await sidecar.stop()
      for (const head of ['GET /a', 'GET /v2/auth/token', 'GET /v2/auth/token/']) {
        const { status, headers, body } = await ask(head, [bearer(token)])
        t.ok(status >= 500)
        if (proxy.failsPlainly) {
          continue
        }
        t.match(
          { status, headers, body: JSON.parse(body.toString()) },
          {
            status: 503,
            headers: {
              'content-type': /^application\/json/,
              'cache-control': 'no-store',
              'retry-after': /^\d+$/,
            },
            body: { code: 'ServiceNotReady', message: ERRORS.notReady.message },
          },
        )
      }
      t.equal(upstream.requests.length, before)
    })
  })
}

t.test('every example passes all headers by which the sidecar judges a request', async (t) => {
  const names = [...JUDGED_HEADERS, 'x-container-read', 'x_container_sync_to', 'x-account-access-control']
  for (const word of [...SECOND_RESOURCE_WORDS, 'acl', 'grant']) {
    names.push(word, `x-vendor-${word}`, `x-${word}-of-vendor`, `vendor_${word}_x`, `x.${word}.x`)
  }
  const read = (example: string) => readFileSync(`examples/forward-auth/${example}`, 'utf8')
  const [envoy] = parseAllDocuments(read('envoy.yaml'))
  const patterns: RegExp[] = []
  visit(envoy ?? null, {
    Pair(_key, { key, value }) {
      if (isScalar(key) && key.value === 'allowed_headers' && isMap(value)) {
        const { patterns: allowed }: { patterns: AllowedHeader[] } = value.toJSON()
        patterns.push(
          ...allowed.map(({ exact, safe_regex }) => new RegExp(`^(?:${exact ?? safe_regex?.regex})$`)),
        )
      }
    },
  })
  for (const name of names) {
    t.ok(
      patterns.some((pattern) => pattern.test(name)),
      `Envoy passes ${name}`,
    )
  }
  t.notOk(patterns.some((pattern) => pattern.test('cookie')))
  // The others pass all headers unless these options say otherwise.
  t.notMatch(read('nginx.conf'), /proxy_pass_request_headers|underscores_in_headers on/)
  t.notMatch(read('Caddyfile'), /header_up/)
  t.notMatch(read('traefik-dynamic.yaml'), /authRequestHeaders/)
  t.notMatch(read('ingress-nginx.yaml'), /proxy_pass_request_headers/)
})

t.test('the annotations of ingress-nginx replace each identity header', async (t) => {
  const [ingress] = parseAllDocuments(readFileSync('examples/forward-auth/ingress-nginx.yaml', 'utf8'))
  const annotations = ingress?.toJS().metadata.annotations
  const replaced: string = annotations['nginx.ingress.kubernetes.io/auth-response-headers']
  t.strictSame(replaced.toLowerCase().split(', '), HEADERS)
})

/** The names of a request that some service could read as identity headers, sorted. */
function namesLike(request: RecordedRequest | undefined): string[] {
  const names = (request?.rawHeaders ?? []).filter((_, at) => at % 2 === 0)
  return names
    .map((name) => name.toLowerCase())
    .filter((name) => /^x\Wauthenticated|^x_auth/.test(name))
    .sort()
}

/** Starts a proxy with its example, without the part `omitted`; returns its port. */
async function startProxy(
  t: Test,
  proxy: Proxy,
  sidecar: number,
  upstream: number,
  omitted: string,
): Promise<number> {
  const directory = await temporaryDirectory(t)
  chmodSync(directory, 0o755) // nginx's workers are another user
  const file = join(directory, proxy.example)
  const port = await freePort()
  const ports: Readonly<Record<string, number>> = { 8080: sidecar, 9000: upstream, 8000: port }
  const withPorts = (text: string) =>
    text.replaceAll(/\b(?:8080|9000|8000)\b/g, (name) => String(ports[name]))
  const example = readFileSync(`examples/forward-auth/${proxy.example}`, 'utf8')
  if (!example.includes(omitted)) {
    throw new Error(`${proxy.example} has no ${omitted}`)
  }
  const text = withPorts(example.replace(omitted, ''))
  writeFileSync(file, proxy.complete?.(text) ?? text)
  const child = spawn(proxy.command, proxy.args(file, directory).map(withPorts), {
    cwd: directory,
    env: { ...process.env, HOME: directory },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { stdout, stderr } = watchProcess(t, child, 'SIGTERM')
  // Traefik listens before it has routes.
  const answers = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/`).catch(() => undefined)
    return response !== undefined && response.status !== 404
  }
  await eventually(answers, () => `${proxy.name} to answer: ${stdout()}${stderr()}`)
  return port
}
