/**
 * The services in examples/ as documented, each behind a sidecar; Compose and systemd for
 * hosts without Kubernetes.
 */
import { spawn, spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { RULES_FILE, rulesFile } from '../../scripts/write-docs.ts'
import { VERSION } from '../../src/base/version.ts'
import { loadConfig } from '../../src/config/load.ts'
import { publicJwks } from '../../src/keys/key-ring.ts'
import { TokenSigner } from '../../src/token/issue.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { makeKey, makeKeyDirectory } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { buildGo, watchProcess, without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { ISSUER, type MintOptions, mintToken } from '../support/tokens.ts'

/** Names that a careless reader decodes wrongly, cuts, or takes for something else. */
const NAMES = [
  'acme',
  'a b+c%20d%2Fe',
  'Ünïcödé & Söhne',
  '口座 中文',
  'حساب التخزين',
  'संग्रह',
  '𝔘𝔫𝔦 🗄️',
  '"quoted", comma; <b>',
]

interface Service {
  readonly port: number
  log(): Record<string, unknown>[]
  stderr(): string
}

/** Starts a service on a free port; it says which. */
async function start(
  t: Test,
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Service> {
  // Without what tap adds to the environment to measure coverage.
  const child = spawn('env', ['-u', 'NODE_OPTIONS', command, ...args], {
    env: { ...process.env, PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { stdout, stderr } = watchProcess(t, child)
  const log = (): Record<string, unknown>[] =>
    stdout()
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line))
  await eventually(
    () => log().some(({ msg }) => msg === 'listening'),
    () => `${command} to listen: ${stderr()}`,
  )
  return { port: Number(log()[0]?.['port']), log, stderr }
}

/** What must hold of each of them. */
async function readsIdentity(t: Test, service: Service): Promise<void> {
  const credentials = NAMES.map((name, index) => ({ accountId: name, accessKey: `${name} key ${index}` }))
  const sidecar = await startSidecar(t, { upstreamUrl: `http://127.0.0.1:${service.port}`, credentials })
  for (const [index, { accountId, accessKey }] of credentials.entries()) {
    const requestId = `example-${index}`
    const claims = { sub: accountId, client_id: accessKey, jti: `id of ${accountId}` }
    const Authorization = `Bearer ${await sidecar.mint({ claims, lifetimeSeconds: 600 })}`
    const response = await fetch(`http://127.0.0.1:${sidecar.port}/a/b?c=%20`, {
      headers: {
        Authorization,
        'X-Request-Id': requestId,
        'X-Authenticated-Account-Id': 'another-account',
        X_Authenticated_Account_Id: 'another-account',
      },
    })
    t.equal(response.status, 200, accountId)
    t.equal(response.headers.get('x-request-id'), requestId)
    const caller: { readonly expiresAt: number } = JSON.parse(await response.text())
    t.match(caller, { account: accountId, accessKey, tokenId: claims.jti })
    t.ok(Math.abs(caller.expiresAt - Date.now() / 1000 - 600) < 120, 'the time it ends')
    const line = () => service.log().find((line) => line['requestId'] === requestId)
    await eventually(line, 'the line of the log')
    t.match(line(), { msg: 'request', status: 200, caller: { account: accountId } })
  }
  const direct = await fetch(`http://127.0.0.1:${service.port}/`)
  t.equal(direct.status, 403, 'without identity headers it refuses')
  const half = await fetch(`http://127.0.0.1:${service.port}/`, {
    headers: { 'X-Authenticated-Account-Id': 'acme' },
  })
  t.equal(half.status, 403, 'part of an identity is none')
}

t.test('the Node service reads the identity and refuses an incomplete one', async (t) => {
  await readsIdentity(t, await start(t, process.execPath, ['examples/node/server.mjs']))
})

t.test('docs/service-authors.md: the service works without the sidecar', async (t) => {
  const [, section = ''] = readFileSync('docs/service-authors.md', 'utf8').split(
    '## Try it without the sidecar',
  )
  const [command = '', shown] = [...section.matchAll(/^```\w*\n([\s\S]*?)\n```$/gm)].map(([, block]) => block)
  const headers = [...command.matchAll(/-H '([\w-]+): (\w+)'/g)].map(([, name = '', value = '']) => [
    name,
    value,
  ])
  t.equal(headers.length, 4)
  const service = await start(t, process.execPath, ['examples/node/server.mjs'])
  const response = await fetch(`http://127.0.0.1:${service.port}/`, { headers: Object.fromEntries(headers) })
  t.equal(await response.text(), shown)
})

t.test('the Node example accepts only assertions signed by the sidecar', async (t) => {
  await verifiesAssertions(t, process.execPath, ['examples/node/assertion.mjs'])
})

t.test('the Python service reads the identity', { skip: without('python3') }, async (t) => {
  await readsIdentity(t, await start(t, 'python3', ['examples/python/server.py']))
})

t.test(
  'the Python example accepts only assertions signed by the sidecar',
  { skip: without('python3', '-c', 'import jwt, cryptography') },
  async (t) => {
    await verifiesAssertions(t, 'python3', ['examples/python/assertion.py'])
  },
)

t.test('the Go services do the same', { skip: without('go') }, async (t) => {
  const directory = await temporaryDirectory(t)
  const compiling = buildGo('examples/go', `${directory}/`, './...')
  if (compiling.error !== undefined) {
    t.ok(true, 'compiles', { skip: 'not compiled within 90 s' })
    return
  }
  t.equal(compiling.status, 0, compiling.stderr)
  await readsIdentity(t, await start(t, join(directory, 'storage-service'), []))
  await verifiesAssertions(t, join(directory, 'assertion'), [])
})

/** What must hold of a service that verifies assertions. */
async function verifiesAssertions(t: Test, command: string, args: readonly string[]): Promise<void> {
  const key = await makeKeyDirectory(t)
  const attacker = { ...(await makeKey('ES256', 'attacker')), kid: key.kid }
  let fetches = 0
  const issuer = createServer((_req, res) => {
    fetches++
    res.end(JSON.stringify(publicJwks(key.ring)))
  })
  const port = await listen(t, issuer)
  const service = await start(t, command, args, {
    JWKS_URL: `http://127.0.0.1:${port}/.well-known/jwks.json`,
  })
  const ask = async (assertion: string | undefined, { port } = service) => {
    const headers: Record<string, string> = { 'X-Authenticated-Account-Id': 'root' }
    if (assertion !== undefined) {
      headers['X-Authenticated-Assertion'] = assertion
    }
    const response = await fetch(`http://127.0.0.1:${port}/`, { headers })
    return { status: response.status, body: JSON.parse(await response.text()) }
  }
  const issuedAtSeconds = Math.floor(Date.now() / 1000)
  const times = { issuedAtSeconds, expiresAtSeconds: issuedAtSeconds + 600 }
  const settings = { issuer: ISSUER, audience: 'storage-api', lifetimeSeconds: 3600 }
  const signer = new TokenSigner(() => key.ring, settings, Date.now)
  for (const accountId of NAMES) {
    const identity = { accountId, accessKey: 'AK', tokenId: 'j', ...times }
    const signed = await signer.signAssertions(identity, ['storage-upstream'], 300)
    t.match(await ask(signed?.assertions.get('storage-upstream')), {
      status: 200,
      body: { account: accountId, accessKey: 'AK', tokenId: 'j' },
    })
  }
  const mint = (options: Partial<MintOptions>) =>
    mintToken({
      key,
      ...options,
      header: { typ: 'upstream-assertion+jwt', ...options.header },
      claims: { aud: 'storage-upstream', ...options.claims },
    })
  t.match(await ask(await mint({})), { status: 200 })
  for (const [name, assertion] of [
    ['none', undefined],
    ['an empty one', ''],
    ['an access token', await mintToken({ key })],
    ['a wrong aud', await mint({ claims: { aud: 'storage-api' } })],
    ['a wrong iss', await mint({ claims: { iss: 'other' } })],
    ['a wrong typ', await mint({ header: { typ: 'at+jwt' } })],
    ['no typ', await mint({ header: { typ: undefined } })],
    ['an ended one', await mint({ lifetimeSeconds: -1 })],
    ['another key', await mint({ key: attacker })],
    ['no signature', await mint({ signature: '' })],
    ['alg none', await mint({ header: { alg: 'none' }, signature: '' })],
  ] as const) {
    t.match(await ask(assertion), { status: 403, body: { code: 'NotAuthenticated' } }, name)
  }
  for (let at = 0; at < 20; at++) {
    t.equal((await ask(await mint({ header: { kid: `invented-${at}` } }))).status, 403)
  }
  t.ok(fetches <= 2, `the keys are cached, and an invented kid costs no fetch (${fetches})`)

  const unreachable = `http://127.0.0.1:${await freePort()}/.well-known/jwks.json`
  const cutOff = await start(t, command, args, { JWKS_URL: unreachable })
  t.match(await ask(await mint({}), cutOff), { status: 503, body: { code: 'ServiceNotReady' } })
  await eventually(() => cutOff.stderr().includes('cannot fetch the keys'), 'a line on stderr')
}

const compose = parse(readFileSync('examples/compose/compose.yaml', 'utf8'), { merge: true })
const UNIT = 'storage-auth-sidecar.service'

t.test('Compose: clients reach the sidecar alone, whose settings are valid', async (t) => {
  const { sidecar, storage, prometheus, postgres, collector, jaeger, ...commands } = compose.services
  const loaded = loadConfig({ file: 'examples/compose/sidecar.yaml', env: {}, flags: {} })
  t.match(loaded, { ok: true, value: { config: { upstreams: [{ url: 'http://storage:9000' }] } } })
  for (const one of [sidecar, ...Object.values<object>(commands)]) {
    t.match(one, { image: `storage-auth-sidecar:${VERSION}`, read_only: true, cap_drop: ['ALL'] })
  }
  t.strictSame(storage.networks, ['storage'])
  for (const name of ['storage', 'database']) {
    t.match(compose.networks[name], { internal: true })
  }
  for (const one of [storage, postgres]) {
    t.notOk(one.ports)
  }
  t.match(sidecar.ports, ['8080:8080', /^127\.0\.0\.1:/])
  t.match(prometheus.ports, [/^127\.0\.0\.1:/])
  t.match(jaeger.ports, [/^127\.0\.0\.1:/])
  t.notOk(collector.ports)
})

t.test('Compose: the sidecar sends its spans to where the collector takes them', async (t) => {
  const settings = parse(readFileSync('examples/compose/sidecar.yaml', 'utf8'))
  const collector = parse(readFileSync('examples/compose/collector.yaml', 'utf8'))
  const { hostname, port, pathname } = new URL(settings.tracing.endpoint)
  t.strictSame([hostname, pathname], ['collector', '/v1/traces'])
  t.equal(collector.receivers.otlp.protocols.http.endpoint, `0.0.0.0:${port}`)
  t.match(collector.exporters.otlp.endpoint, /^jaeger:/)
  for (const name of ['sidecar', 'collector', 'jaeger']) {
    t.ok(compose.services[name].networks.includes('traces'), name)
  }
})

t.test('Compose accepts the file', { skip: without('docker', 'compose', 'version') }, async (t) => {
  const directory = t.testdir()
  cpSync('examples/compose', directory, { recursive: true })
  mkdirSync(join(directory, 'etc'))
  writeFileSync(join(directory, 'etc/postgres.password'), '')
  const args = ['compose', '--project-directory', directory, 'config', '--quiet']
  const { status, stderr } = spawnSync('docker', args)
  t.equal(status, 0, String(stderr))
})

t.test('Compose loads the alerts, as npm run docs wrote them', async (t) => {
  t.equal(readFileSync(RULES_FILE, 'utf8'), rulesFile())
  const settings = parse(readFileSync('examples/compose/prometheus.yml', 'utf8'))
  t.strictSame(settings.rule_files, ['rules.yml'])
  const mounted: readonly string[] = compose.services.prometheus.volumes
  t.ok(mounted.some((volume) => volume.startsWith('./rules.yml:/etc/prometheus/rules.yml')))
})

t.test('Prometheus accepts its settings', { skip: without('promtool', '--version') }, async (t) => {
  const { status, stderr } = spawnSync('promtool', ['check', 'config', 'examples/compose/prometheus.yml'])
  t.equal(status, 0, String(stderr))
})

t.test('systemd accepts the unit, and finds it hardened', { skip: without('systemd-analyze') }, async (t) => {
  const file = join(t.testdir(), UNIT)
  copyFileSync(join('examples/systemd', UNIT), file)
  const verified = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' })
  t.strictSame([verified.status, verified.stderr], [0, ''])
  const args = ['security', '--offline=true', '--no-pager', file]
  const { stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
  const [, exposure] = /exposure level for .*: ([\d.]+)/.exec(stdout) ?? []
  t.ok(Number(exposure) <= 1.5, `exposure ${exposure}`)
})
