/** The feed from end to end: issuing sidecars, and followers behind a relay, as processes of their own. */
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { connect } from 'node:tls'
import t, { type Test } from 'tap'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { makeCertificate, type TestCertificate } from '../support/certificates.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { makeKey, makeKeyDirectory } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startRelay } from '../support/relay.ts'
import { runCommand } from '../support/run-command.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { mintToken } from '../support/tokens.ts'

const server = await requirePostgres(t)
const SECRET = 'a chosen secret'
const nameOf = (at: number) => ({ accountId: 'acme', accessKey: `AK${at}` })
const NAMES = [nameOf(0), nameOf(1), nameOf(2)]

async function writeToken(t: Test, token = 'the-token-of-the-fleet') {
  const file = join(await temporaryDirectory(t), 'token')
  writeFileSync(file, `${token}\n`)
  return file
}

/** Flags of a follower of the hub at this port. */
const followerFlags = (port: number, tokenFile: string, scheme = 'http') => ({
  'keys-jwks-url': `${scheme}://127.0.0.1:${port}/.well-known/jwks.json`,
  'credentials-feed-url': `${scheme}://127.0.0.1:${port}/feed`,
  'credentials-feed-token-file': tokenFile,
})

type Client = ReturnType<typeof sidecarClient>

const becomes = (client: Client, token: string, expected: string) =>
  eventually(async () => (await client.check(token)) === expected, `${expected} at the follower`, SOON_MS)

t.test('what is disabled in the file of a hub is refused by its follower', async (t) => {
  const tokenFile = await writeToken(t)
  const key = await makeKeyDirectory(t)
  const { file, logins } = await makeCredentialsFile(t, [{}, {}])
  const upstream = await recordingUpstream(t)
  const hub = await serve(t, {
    'keys-directory': key.directory,
    'credentials-file': file,
    'feed-enabled': 'true',
    'feed-token-file': tokenFile,
    'upstream-url': upstream.url,
  })
  const follower = await serve(t, {
    ...followerFlags(hub.adminPort, tokenFile),
    'upstream-url': upstream.url,
    workers: '2',
  })
  const [login = { accountId: '', accessKey: '', secret: '' }, other = login] = logins
  const client = sidecarClient(follower)
  const token = await sidecarClient(hub).login(login)
  const kept = await sidecarClient(hub).login(other)
  t.equal(await client.check(token), 'ok')
  t.equal(await client.login(login), '503 ServiceNotReady')
  const credentialFlags = ['--file', file, '--account', login.accountId, '--access-key', login.accessKey]
  await runCommand(credentialsCommand, ['disable', ...credentialFlags])
  for (let times = 0; times < 4; times++) {
    await becomes(client, token, 'InvalidToken') // by either worker
  }
  t.equal(await client.check(kept), 'ok')
  await runCommand(credentialsCommand, ['enable', ...credentialFlags])
  await becomes(client, token, 'ok')
})

/** A hub on a database, where others can be started, too. */
async function firstHub(t: Test, hubFlags: Readonly<Record<string, string>> = {}) {
  const tokenFile = await writeToken(t)
  const { database, flags } = await databaseSetup(t, server.createDatabase, NAMES, SECRET)
  const startHub = () =>
    serve(t, { ...flags, 'feed-enabled': 'true', 'feed-token-file': tokenFile, ...hubFlags })
  const hub = await startHub()
  const logIn = (at: number) => sidecarClient(hub).login({ ...nameOf(at), secret: SECRET })
  const disable = (at: number, disabled = true) =>
    database.sql(`UPDATE storage_auth.credentials SET disabled = ${disabled} WHERE access_key = 'AK${at}'`)
  return { database, hub, startHub, logIn, disable, tokenFile, upstreamUrl: flags['upstream-url'] }
}

/** A hub, and a follower that reaches it through a relay. `caFile`: with TLS. */
async function fleet(t: Test, hubFlags: Readonly<Record<string, string>> = {}, caFile?: string) {
  const { tokenFile, upstreamUrl, ...first } = await firstHub(t, hubFlags)
  const relay = await startRelay(t, first.hub.adminPort)
  const follower = await serve(t, {
    ...followerFlags(relay.port, tokenFile, caFile === undefined ? 'http' : 'https'),
    ...(caFile !== undefined && { 'credentials-feed-ca-file': caFile, 'keys-ca-file': caFile }),
    'upstream-url': upstreamUrl,
  })
  const client = sidecarClient(follower)
  const metric = (name: string) => metricAt(follower.adminPort, `auth_sidecar_${name}`)
  return { ...first, relay, follower, client, metric }
}

t.test('a hub that is killed or replaced is not missed', async (t) => {
  const { hub, startHub, relay, follower, client, logIn, disable } = await fleet(t)
  const second = await startHub()
  const tokens = [await logIn(0), await logIn(1), await logIn(2)]
  const [token = ''] = tokens
  t.equal(await client.check(token), 'ok')
  const isFollowed = async (at: number) => {
    await disable(at)
    await becomes(client, tokens[at] ?? '', 'InvalidToken')
  }
  await isFollowed(0)
  relay.lead(second.adminPort)
  process.kill(hub.pid, 'SIGKILL')
  await isFollowed(1)
  const replacement = await startHub()
  relay.lead(replacement.adminPort)
  process.kill(second.pid, 'SIGTERM')
  await isFollowed(2)
  const states = follower.log().filter(({ msg }) => msg === 'new credentials active')
  t.equal(states.length, 4, 'a state for the start and for each change')
})

t.test('a follower goes on while what it follows is away', async (t) => {
  const { database, hub, relay, follower, client, logIn, disable, metric } = await fleet(t)

  await t.test(
    'the last state stays while no hub is reached, and what was missed comes after it',
    async (t) => {
      const first = await logIn(0)
      const second = await logIn(1)
      relay.lead(1)
      await follower.until(
        () => follower.log().some(({ msg }) => /cannot be followed/.test(String(msg))),
        'the loss',
      )
      await disable(0)
      t.equal(await client.check(first), 'ok')
      t.equal(await metric('reload_failing{subject="credentials"}'), 1)
      relay.lead(hub.adminPort)
      await eventually(
        async () => (await client.check(first)) === 'InvalidToken',
        'the change that was missed',
      )
      t.equal(await client.check(second), 'ok')
      t.equal(await metric('reload_failing{subject="credentials"}'), 0)
    },
  )

  await t.test('a database that is away, and then an older one, reach followers', async (t) => {
    const token = await logIn(2)
    const [backup] = await database.sql<{ number: string; stamp: string }>(
      'SELECT number, stamp FROM storage_auth.revision',
    )
    await disable(2)
    await becomes(client, token, 'InvalidToken')
    await server.kill()
    await eventually(async () => (await metric('feed_age_seconds')) >= 1, 'the age of the hub itself')
    t.equal(await client.check(token), 'InvalidToken')
    await server.start()
    await database.sql(`
      UPDATE storage_auth.credentials SET disabled = false;
      DELETE FROM storage_auth.history WHERE number > ${backup?.number};
      UPDATE storage_auth.revision SET number = ${backup?.number}, stamp = '${backup?.stamp}'`)
    await eventually(async () => (await client.check(token)) === 'ok', 'the state before the change')
  })
})

t.test('a follower proves itself by a token of a trusted issuer, which may be replaced', async (t) => {
  const issuer = 'https://kubernetes.default.svc.cluster.local'
  const key = await makeKey('RS256', 'cluster')
  const keys = createServer((_req, res) => res.end(JSON.stringify({ keys: [key.publicJwk] })))
  const trusted = {
    issuer,
    jwksUrl: `http://127.0.0.1:${await listen(t, keys)}/`,
    audience: 'storage-feed',
    accounts: {},
  }
  const subject = 'system:serviceaccount:storage:follower'
  const { hub, logIn, disable } = await firstHub(t, {
    'trusted-issuers': JSON.stringify([trusted]),
    'feed-subjects': JSON.stringify([subject]),
  })
  const serviceAccountToken = (lifetimeSeconds: number, sub = subject) => {
    const claims = { iss: issuer, aud: ['storage-feed'], sub, client_id: undefined }
    return mintToken({ key, lifetimeSeconds, header: { typ: undefined }, claims })
  }
  const projected = await writeToken(t, await serviceAccountToken(3600))
  const follower = await serve(t, {
    ...followerFlags(hub.adminPort, projected),
    'upstream-url': 'http://127.0.0.1:9',
  })
  const client = sidecarClient(follower)
  const followers = () => metricAt(hub.adminPort, 'auth_sidecar_feed_followers')
  const [first, second] = [await logIn(0), await logIn(1)]
  t.equal(await client.check(first), 'ok')
  writeFileSync(projected, await serviceAccountToken(3600))
  await disable(0)
  await becomes(client, first, 'InvalidToken')
  await eventually(async () => (await followers()) === 1, 'the next request, with the token that is good')
  writeFileSync(projected, await serviceAccountToken(3600, 'system:serviceaccount:storage:other'))
  await disable(1)
  await becomes(client, second, 'InvalidToken')
  await follower.until(
    () => follower.log().some(({ problem }) => /status 401/.test(String(problem))),
    'the 401',
  )
  t.notMatch(follower.stdout() + hub.stdout(), /eyJ/, 'no token is logged')
})

/** Whether the authority has signed the certificate that is presented there. */
function presents(port: number, { cert: ca }: TestCertificate): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', ca }, () => {
      socket.destroy()
      resolve(true)
    })
    socket.on('error', () => resolve(false))
  })
}

t.test('certificates of hubs, and their CA, are replaced while followers go on', async (t) => {
  const directory = await temporaryDirectory(t)
  const [caFile, certFile, keyFile] = ['ca.crt', 'tls.crt', 'tls.key'].map((name) => join(directory, name))
  const authority = (commonName: string) => makeCertificate({ commonName, authority: true })
  const [former, later] = [authority('former'), authority('later')]
  const present = (issuer: TestCertificate) => {
    const { cert, key } = makeCertificate({ commonName: 'hub', names: ['127.0.0.1'], issuer })
    writeFileSync(String(keyFile), key, { mode: 0o600 })
    writeFileSync(String(certFile), cert)
  }
  const trust = (...authorities: readonly TestCertificate[]) =>
    writeFileSync(String(caFile), authorities.map(({ cert }) => cert).join(''))
  present(former)
  trust(former)
  const tlsFlags = { 'admin-tls-cert-file': String(certFile), 'admin-tls-key-file': String(keyFile) }
  const { hub, follower, client, logIn, disable, metric } = await fleet(t, tlsFlags, String(caFile))
  const [first, second] = [await logIn(0), await logIn(1)]
  const isReloaded = 'reloads_total{subject="certificates",result="ok"}'
  const isFailing = () => follower.log().some(({ msg }) => /cannot be followed/.test(String(msg)))
  await disable(0)
  await becomes(client, first, 'InvalidToken')

  trust(former, later)
  await eventually(async () => (await metric(isReloaded)) >= 2, 'both authorities')
  present(later)
  await eventually(() => presents(hub.adminPort, later), 'the certificate of the hub')
  trust(later)
  await eventually(async () => (await metric(isReloaded)) >= 4, 'the later authority')
  await disable(1)
  await becomes(client, second, 'InvalidToken')
  t.equal(isFailing(), false)

  trust(former)
  await eventually(isFailing, 'the end of a connection that is no longer trusted')
})
