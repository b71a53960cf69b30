/** A sidecar that only verifies, and follows the feed of a scripted hub. */
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { configCommand } from '../../src/cli/config.ts'
import { tokenCommand } from '../../src/cli/token.ts'
import { makeCertificate } from '../support/certificates.ts'
import { eventually, inTime, SOON_MS } from '../support/eventually.ts'
import { type HubState, startHub, type TestHub, wholeDocument } from '../support/feed-hub.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { runProgram } from '../support/program.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { runCommand } from '../support/run-command.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { mintToken } from '../support/tokens.ts'
import { echoServer, HANDSHAKE } from '../support/websocket.ts'

const IDP = 'https://idp.example'
const key = await makeKey()
const idpKey = await makeKey('RS256', 'idp')
const AK = { accountId: 'acme', accessKey: 'AK' }
const OTHER = { accountId: 'acme', accessKey: 'other' }
const STATE: HubState = { credentials: [AK, OTHER] }

const tokenOf = (name = AK, claims: Record<string, unknown> = {}) =>
  mintToken({ key, claims: { sub: name.accountId, client_id: name.accessKey, ...claims } })
const foreignToken = () =>
  mintToken({
    key: idpKey,
    header: { typ: 'JWT' },
    claims: { iss: IDP, sub: 'runner', client_id: undefined },
  })

/** The settings of a follower, and the URL of the keys. */
async function settingsFor(t: Test, { url }: Pick<TestHub, 'url'>) {
  const keys = [key.publicJwk, idpKey.publicJwk]
  const keyServer = createServer((_req, res) => res.end(JSON.stringify({ keys })))
  const jwksUrl = `http://127.0.0.1:${await listen(t, keyServer)}/`
  const tokenFile = join(await temporaryDirectory(t), 'token')
  writeFileSync(tokenFile, 'follower\n')
  const trusted = { issuer: IDP, jwksUrl, audience: 'storage-api', accountPrefix: 'idp:' }
  const settings = {
    'credentials-feed-url': url,
    'credentials-feed-token-file': tokenFile,
    'trusted-issuers': JSON.stringify([trusted]),
  }
  return { jwksUrl, settings }
}

async function setUp(
  t: Test,
  {
    state = STATE,
    settings = {},
    upstreamUrl,
  }: { state?: HubState; settings?: object; upstreamUrl?: string } = {},
) {
  const hub = await startHub(t, state)
  const upstream = await recordingUpstream(t)
  const clock = { aheadMs: 0 }
  const common = await settingsFor(t, hub)
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstreamUrl ?? upstream.url,
    jwksUrl: common.jwksUrl,
    settings: { ...common.settings, ...settings },
    now: () => Date.now() + clock.aheadMs,
  })
  const client = sidecarClient(sidecar)
  const refuses = (token: string) =>
    eventually(async () => (await client.check(token)) === 'InvalidToken', 'the refusal', SOON_MS)
  return { hub, clock, sidecar, client, refuses }
}

t.test(
  'tokens are good while their credential is in the state, and a change reaches cached ones',
  async (t) => {
    const { hub, client, refuses, sidecar } = await setUp(t)
    const token = await tokenOf()
    const other = await tokenOf(OTHER)
    t.equal(await client.check(token), 'ok')
    t.equal(await client.forward(other), 200)
    t.equal(await client.check(await tokenOf({ accountId: 'acme', accessKey: 'unknown' })), 'InvalidToken')
    t.equal(await client.login({ ...AK, secret: 'any' }), '503 ServiceNotReady')
    hub.publish({ credentials: [OTHER] })
    await refuses(token)
    t.equal(await client.check(other), 'ok')
    hub.publish({ credentials: [AK, { ...OTHER, expiresAt: new Date(Date.now() - 1000).toISOString() }] })
    await refuses(other)
    t.equal(await client.check(token), 'ok')
    hub.publish({ credentials: [AK], revocations: [{ accessKey: 'AK' }] })
    await refuses(token)
    t.equal(await sidecar.metric('auth_sidecar_credentials_active'), 1)
    t.equal(await sidecar.metric('auth_sidecar_revocations'), 1)
  },
)

t.test('a scope of the state restricts tokens', async (t) => {
  const { hub, client, sidecar } = await setUp(t)
  const token = await tokenOf()
  t.equal(await client.forward(token), 200)
  hub.publish({ credentials: [{ ...AK, scope: 'storage.read:/elsewhere' }] })
  await eventually(async () => (await client.forward(token)) === 403, 'the restriction')
  t.equal(sidecar.log.filter(({ msg }) => msg === 'new credentials active').length, 2)
})

t.test('a revocation of one token removes it from the cache, and no other', async (t) => {
  const { hub, client, refuses, sidecar } = await setUp(t)
  const ended = await tokenOf(AK, { jti: 'ended' })
  const kept = await tokenOf()
  t.equal(await client.check(ended), 'ok')
  t.equal(await client.check(kept), 'ok')
  hub.publish({ ...STATE, revocations: [{ jti: 'ended', issuer: 'storage-account-api' }] })
  await refuses(ended)
  const misses = await sidecar.metric('auth_sidecar_token_cache_misses_total')
  t.equal(await client.check(kept), 'ok')
  t.equal(await sidecar.metric('auth_sidecar_token_cache_misses_total'), misses)
  t.equal(sidecar.log.filter(({ msg }) => msg === 'new credentials active').length, 1)
})

t.test('the sidecar accepts no connection before the first state, and then is ready', async (t) => {
  const hub = await startHub(t, STATE)
  hub.respond = (res) => res.writeHead(401).end()
  const { jwksUrl, settings } = await settingsFor(t, hub)
  let isStarted = false
  const starting = startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9', jwksUrl, settings }).then(
    (sidecar) => {
      isStarted = true
      return sidecar
    },
  )
  await hub.until((_request, at) => at > 0, 'a second request')
  t.equal(isStarted, false)
  hub.respond = undefined
  const sidecar = await inTime(starting, 'the start')
  const { status, checks } = await sidecarClient(sidecar).ready()
  t.equal(status, 200)
  t.match(checks, [{}, { name: 'credentials', ok: true, state: 'current' }])
  t.match(
    sidecar.log.find(({ msg }) => msg === 'waiting for the feed'),
    { problem: /status 401/, from: hub.url },
  )
})

t.test('while the feed is away, the last state decides, and the page and metrics say so', async (t) => {
  const { hub, client, sidecar, clock } = await setUp(t)
  const token = await tokenOf()
  hub.stop()
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_reload_failing{subject="credentials"}')) === 1,
    'the failure',
  )
  clock.aheadMs = 600_000
  t.equal(
    await client.check(await mintToken({ key, now: Date.now() + 600_000, claims: { client_id: 'AK' } })),
    'ok',
  )
  t.ok((await sidecar.metric('auth_sidecar_feed_age_seconds')) >= 600)
  t.match(await client.ready(), { status: 200, checks: [{}, { state: 'feed failing, last state active' }] })
  const page = await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)).text()
  t.match(page, /The feed has brought nothing for 10 min: token checks use its last state/)
  t.match(JSON.parse(page), { credentials: 'feed' })
  clock.aheadMs = 0
  await hub.start()
  hub.publish({ credentials: [OTHER] })
  await eventually(async () => (await client.check(token)) === 'InvalidToken', 'the change meanwhile')
  t.match(
    sidecar.log.filter(({ msg }) => /feed/.test(String(msg))),
    [
      { level: 50, msg: 'the feed cannot be followed, the last state stays active' },
      { level: 30, msg: 'the feed can be followed again' },
    ],
  )
})

t.test('a hub that has lost its database does not bring back a state that is older', async (t) => {
  const { hub, client, sidecar, refuses } = await setUp(t, {
    settings: { 'credentials-feed-max-stale-seconds': '60' },
  })
  const token = await tokenOf()
  const other = await tokenOf(OTHER)
  hub.publish({ credentials: [OTHER] })
  await refuses(token)
  const isFailing = () => sidecar.metric('auth_sidecar_reload_failing{subject="credentials"}')
  const documents = [
    wholeDocument('v1', STATE),
    { ...wholeDocument('v3', { credentials: [AK] }), from: 'v2' },
  ]
  for (const document of documents) {
    hub.respond = (res) => hub.send(res, document, { age: '3600' })
    hub.stop()
    await hub.start()
    await eventually(async () => (await isFailing()) === 1, 'the report')
    t.equal(await client.check(token), 'InvalidToken')
    t.equal(await client.check(other), 'ok', 'the state that is newer stays')
    hub.respond = undefined
    await eventually(async () => (await isFailing()) === 0, 'a hub that reaches its database')
  }
  t.match(
    sidecar.log.find(({ problem }) => problem),
    { problem: /older than the active state/ },
  )
})

t.test(
  'a hub that has lost its database a moment before its last response brings what its files say',
  async (t) => {
    const { hub, client, refuses } = await setUp(t)
    const token = await tokenOf()
    t.equal(await client.check(token), 'ok')
    const document = wholeDocument('v2', { credentials: [OTHER] })
    hub.respond = (res) => hub.send(res, document, { age: '4' })
    hub.stop()
    await hub.start()
    await refuses(token)
  },
)

t.test('a hub that has lost its database makes no state older', async (t) => {
  const { hub, client, sidecar } = await setUp(t, {
    settings: { 'credentials-feed-max-stale-seconds': '60' },
  })
  await hub.until(({ waits }) => waits)
  hub.respond = (res) => res.writeHead(304, { age: '3600' }).end()
  hub.stop()
  await hub.start()
  const before = hub.requests.length
  await hub.until((_request, at) => at > before + 1)
  t.equal(await client.check(await tokenOf()), 'ok')
  t.ok((await sidecar.metric('auth_sidecar_feed_age_seconds')) < 60)
})

t.test('with maxStaleSeconds, no token is accepted once the state is older', async (t) => {
  const echo = await echoServer(t)
  const { hub, client, sidecar, clock } = await setUp(t, {
    settings: { 'credentials-feed-max-stale-seconds': '60', 'upgrade-enabled': 'true' },
    upstreamUrl: `http://127.0.0.1:${echo.port}`,
  })
  const cached = await tokenOf()
  const fresh = await tokenOf()
  const foreign = await foreignToken()
  t.equal(await client.check(cached), 'ok')
  await eventually(async () => (await client.check(foreign)) === 'ok', 'the keys of the trusted issuer')
  const { connect } = await import('node:net')
  const tunnel = connect(sidecar.port, '127.0.0.1')
  const closed = new Promise((resolve) => tunnel.on('close', resolve))
  const upgraded = new Promise((resolve) => tunnel.once('data', resolve))
  const lines = ['GET / HTTP/1.1', 'Host: a', `Authorization: Bearer ${cached}`, ...HANDSHAKE, '', '']
  tunnel.write(lines.join('\r\n'))
  t.match(String(await inTime(upgraded, 'the tunnel')), /^HTTP\/1.1 101/)
  hub.stop()
  clock.aheadMs = 59_000 - Number(await sidecar.metric('auth_sidecar_feed_age_seconds')) * 1000
  t.equal(await client.check(cached), 'ok')
  clock.aheadMs = 61_000
  for (const token of [fresh, 'not.a.token']) {
    t.equal(await client.check(token), 'ServiceNotReady')
  }
  for (const token of [cached, foreign]) {
    await eventually(
      async () => (await client.check(token)) === 'ServiceNotReady',
      'the end of cached tokens',
    )
  }
  t.equal(await client.forward(cached), 503)
  await inTime(closed, 'the end of the tunnel')
  t.match(await client.ready(), { status: 200, checks: [{}, { state: 'feed failing, state too old' }] })
  t.ok((await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="unavailable"}')) >= 5)
  clock.aheadMs = 0
  await hub.start()
  await eventually(async () => (await client.check(cached)) === 'ok', 'a state that is new')
  t.equal(await client.check(foreign), 'ok')
})

t.test('a whole state that lost revocations, or all credentials, is suspect', async (t) => {
  const entries = [{ accessKey: 'x' }, { accessKey: 'y' }, { jti: 'z', expiresAt: '2020-01-01T00:00:00Z' }]
  const { hub, sidecar } = await setUp(t, { state: { ...STATE, revocations: entries } })
  const suspect = (subject: string) => sidecar.metric(`auth_sidecar_reload_suspect{subject="${subject}"}`)
  t.equal(await suspect('revocations'), 0)
  const fingerprint = await sidecar.metric('auth_sidecar_state_fingerprint{subject="credentials"}')
  t.ok(fingerprint > 0)
  hub.stop()
  hub.publish(STATE)
  hub.forget()
  await hub.start()
  await eventually(async () => (await suspect('revocations')) === 1, 'the loss of two')
  t.equal(await suspect('credentials'), 0)
  hub.publish({ ...STATE, revocations: entries })
  await eventually(async () => (await suspect('revocations')) === 0, 'their return')
  hub.publish({ credentials: [], revocations: entries })
  await eventually(async () => (await suspect('credentials')) === 1, 'the loss of all credentials')
  t.not(await sidecar.metric('auth_sidecar_state_fingerprint{subject="credentials"}'), fingerprint)
  hub.publish({ ...STATE, revocations: entries })
  await eventually(async () => (await suspect('credentials')) === 0, 'their return')
  t.equal(await sidecar.metric('auth_sidecar_state_fingerprint{subject="credentials"}'), fingerprint)
})

t.test('the hub is trusted by the CAs of caFile, and a connection does not outlive them', async (t) => {
  const directory = await temporaryDirectory(t)
  const caFile = join(directory, 'ca.crt')
  const first = makeCertificate({ commonName: 'first', authority: true })
  const second = makeCertificate({ commonName: 'second', authority: true })
  const leaf = makeCertificate({ commonName: 'hub', names: ['127.0.0.1'], issuer: first })
  writeFileSync(caFile, first.cert)
  const hub = await startHub(t, STATE, { cert: leaf.cert, key: leaf.key })
  const { jwksUrl, settings } = await settingsFor(t, hub)
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    jwksUrl,
    settings: { ...settings, 'credentials-feed-ca-file': caFile },
  })
  await hub.until(({ waits }) => waits)
  t.same(new Set(hub.requests.map(({ connection }) => connection)), new Set([0]))
  writeFileSync(caFile, String(second?.cert))
  const isUntrusted = () => sidecar.log.some(({ problem }) => /UNABLE_TO|SELF_SIGNED/.test(String(problem)))
  await eventually(isUntrusted, 'a connection that is not trusted')
  const before = hub.requests.length
  writeFileSync(caFile, String(second?.cert) + String(first?.cert))
  await hub.until(({ connection }, at) => at >= before && connection > 0, 'a new connection')
})

t.test('settings that cannot be meant are refused', async (t) => {
  const feed = ['--credentials-feed-url', 'https://hub:8081/feed', '--credentials-feed-token-file', '/t']
  const check = (flags: readonly string[]) =>
    runCommand(configCommand, ['check', '--upstream-url', 'http://127.0.0.1:9', ...flags])
  const jwks = ['--keys-jwks-url', 'https://hub:8081/keys']
  const refused: readonly (readonly [string, readonly string[], RegExp])[] = [
    ['no keys.jwksUrl', feed, /credentials.feed: needs keys.jwksUrl/],
    [
      'a database',
      [...feed, ...jwks, '--credentials-postgres-url-file', '/u'],
      /credentials.feed: cannot be used with/,
    ],
    ['a file', [...feed, ...jwks, '--credentials-file', '/c'], /cannot be used with/],
    [
      'logout',
      [...feed, ...jwks, '--contract-logout', 'true'],
      /contract.logout: needs credentials.postgres/,
    ],
    ['http', [...feed, ...jwks, '--credentials-feed-url', 'http://hub/feed'], /feed.url: must be an https/],
    [
      'a user',
      [...feed, ...jwks, '--credentials-feed-url', 'https://u:p@hub/feed'],
      /feed.url: must be an https/,
    ],
    ['59 s', [...feed, ...jwks, '--credentials-feed-max-stale-seconds', '59'], /integer from 60/],
    ['no token', [...feed.slice(0, 2), ...jwks], /tokenFile: is missing/],
    [
      'a CA for http',
      [...feed, ...jwks, '--credentials-feed-url', 'http://localhost/f', '--credentials-feed-ca-file', '/c'],
      /caFile/,
    ],
  ]
  for (const [what, flags, problem] of refused) {
    const { failure } = await check(flags)
    t.match(failure, { exitCode: 2, message: problem }, what)
  }
  t.equal((await check([...feed, ...jwks])).failure, undefined)
})

t.test('token inspect asks the feed for the credential', async (t) => {
  const hub = await startHub(t, STATE)
  const { jwksUrl, settings } = await settingsFor(t, hub)
  const flags = Object.entries({ ...settings, 'keys-jwks-url': jwksUrl, 'trusted-issuers': '[]' })
  const inspect = (token: string) =>
    runCommand(tokenCommand, ['inspect', token, ...flags.flatMap(([name, value]) => [`--${name}`, value])])
  t.match(await inspect(await tokenOf()), { failure: undefined, stdout: /accepted/ })
  t.match(await inspect(await tokenOf({ accountId: 'acme', accessKey: 'unknown' })), {
    failure: { exitCode: 1 },
    stdout: /revoked/,
  })
})

t.test('config check reads the files of the feed, and with --fetch the feed itself', async (t) => {
  const hub = await startHub(t, STATE)
  const { jwksUrl, settings } = await settingsFor(t, hub)
  const flags = Object.entries({
    ...settings,
    'keys-jwks-url': jwksUrl,
    'upstream-url': 'http://127.0.0.1:9',
  })
  const check = (...more: readonly string[]) =>
    runProgram(t, ['config', 'check', ...flags.flatMap(([name, value]) => [`--${name}`, value]), ...more])
  t.match(await check('--fetch'), { code: 0, stdout: /credentials.feed.url: 2 credentials, 0 revocations/ })
  hub.respond = (res) => hub.send(res, { ...wholeDocument('v1', STATE), format: 2 })
  t.match(await check('--fetch'), { code: 2, stderr: /credentials.feed.url: the feed has another format/ })
  t.match(await check('--files', '--credentials-feed-token-file', '/nowhere'), {
    code: 2,
    stderr: /credentials.feed.tokenFile: \/nowhere: cannot be read/,
  })
})
