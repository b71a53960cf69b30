import { once } from 'node:events'
import { copyFileSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { decodeJwt, decodeProtectedHeader } from 'jose'
import t, { type Test } from 'tap'
import { keysCommand } from '../../src/cli/keys.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually, succeeds } from '../support/eventually.ts'
import { freePorts } from '../support/free-port.ts'
import { makeKey, makeKeyDirectory, writeKey } from '../support/keys.ts'
import { serveArgs, startProgram } from '../support/program.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { runCommand } from '../support/run-command.ts'
import { startSidecar } from '../support/sidecar.ts'
import { type SidecarClient, sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { mintToken } from '../support/tokens.ts'

const LIFETIME_SECONDS = 2

/** The outcome of a command that succeeded. */
const DONE = { failure: undefined }

/** Brings a directory of keys to another place, as a volume that is mounted in two pods. */
function bring(from: string, to: string): void {
  const names = readdirSync(from).filter((name) => !name.startsWith('.') && !name.endsWith('.lock'))
  for (const name of names) {
    copyFileSync(join(from, name), join(to, `.${name}`))
    renameSync(join(to, `.${name}`), join(to, name))
  }
  for (const name of readdirSync(to)) {
    if (!names.includes(name)) {
      rmSync(join(to, name))
    }
  }
}

/** A directory of keys, and two sidecars each of which has its own copy of it. */
async function twoSidecars(t: Test) {
  const upstream = await recordingUpstream(t)
  const directory = await temporaryDirectory(t)
  const keys = (...args: string[]) => runCommand(keysCommand, [...args, '--directory', directory])
  t.match(await keys('add', '--kid', 'old'), DONE)
  const { file, logins } = await makeCredentialsFile(t)
  const [login] = logins
  if (login === undefined) {
    throw new Error('there is a login')
  }
  const sidecar = async () => {
    const copy = await temporaryDirectory(t)
    bring(directory, copy)
    const settings = {
      'keys-directory': copy,
      'credentials-file': file,
      'token-lifetime-seconds': String(LIFETIME_SECONDS),
    }
    const client = sidecarClient(await startSidecar(t, { upstreamUrl: upstream.url, settings }))
    return { client, receive: () => bring(directory, copy) }
  }
  return { keys, login, one: await sidecar(), other: await sidecar() }
}

const kidOf = (token: string) => decodeProtectedHeader(token).kid

/** Logs in at every sidecar and uses each token that is alive at every sidecar, until it is stopped. */
function traffic(clients: readonly SidecarClient[], login: Parameters<SidecarClient['login']>[0]) {
  const alive: { readonly token: string; readonly until: number }[] = []
  const count = { uses: 0, refusals: 0, kids: new Set<string | undefined>() }
  let going = true
  const dropExpired = () => {
    while (alive[0] !== undefined && alive[0].until <= Date.now()) {
      alive.shift()
    }
  }
  const use = async (token: string, until: number, client: SidecarClient) => {
    const status = await client.forward(token)
    // A token that is still valid when the response arrives must have been accepted.
    if (Date.now() < until) {
      count.uses++
      count.refusals += status === 200 ? 0 : 1
    }
  }
  const users = clients.flatMap((client, at) =>
    [1, 2].map(async () => {
      while (going) {
        const token = await client.login(login)
        const { exp = 0 } = decodeJwt(token)
        count.kids.add(kidOf(token))
        alive.push({ token, until: exp * 1000 })
        dropExpired()
        const elsewhere = clients[(at + 1) % clients.length] ?? client
        for (const { token, until } of alive.slice(-10)) {
          await use(token, until, elsewhere)
        }
        await sleep(150) // the commands need the machine, too
      }
    }),
  )
  const stop = async () => {
    going = false
    await Promise.all(users)
    return count
  }
  return { count, stop }
}

t.test('no valid token is refused during a key rotation, whichever sidecar reloads first', async (t) => {
  const { keys, login, one, other } = await twoSidecars(t)
  const clients = [one.client, other.client]
  const { count, stop } = traffic(clients, login)
  /** The traffic of a moment, so that there are tokens of every state. */
  const more = async () => {
    const { uses } = count
    await eventually(() => count.uses > uses + 50, 'traffic')
  }
  const signs = (client: SidecarClient, kid: string) => async () => kidOf(await client.login(login)) === kid
  const shows = (client: SidecarClient, kid: string) => async () => (await client.kids()).includes(kid)
  await more()

  t.match(await keys('add', '--kid', 'new'), DONE)
  for (const { client, receive } of [one, other]) {
    receive()
    await eventually(shows(client, 'new'), 'the new key to be published')
    await more()
  }
  t.strictSame([...count.kids], ['old'], 'it does not sign yet')

  t.match(await keys('activate', 'new'), DONE)
  const activated = Date.now()
  for (const { client, receive } of [other, one]) {
    receive()
    await eventually(signs(client, 'new'), 'the new key to sign')
    await more()
  }
  t.match(await keys('retire', 'old'), { failure: { exitCode: 1, message: /can be alive until/ } })
  // The other sidecar went on signing for a while.
  const spreadSeconds = Math.ceil((Date.now() - activated) / 1000)
  const lifetime = ['--max-lifetime-seconds', String(LIFETIME_SECONDS + spreadSeconds)]
  await eventually(async () => {
    await sleep(100)
    return (await keys('retire', 'old', ...lifetime)).failure === undefined
  }, 'the old key to go')
  for (const { client, receive } of [one, other]) {
    receive()
    await eventually(async () => !(await shows(client, 'old')()), 'the old key to be gone')
    await more()
  }

  const { uses, refusals, kids } = await stop()
  t.equal(refusals, 0)
  t.ok(uses >= 350, `of ${uses} uses of live tokens`)
  t.strictSame([...kids], ['old', 'new'])
  t.comment(`${refusals} of ${uses} uses of live tokens refused`)
})

/** A sidecar that issues, and one that verifies with the keys that the first one publishes. */
async function pair(t: Test) {
  const upstream = await recordingUpstream(t)
  const issuer = await startSidecar(t, { upstreamUrl: upstream.url })
  const jwksUrl = `http://127.0.0.1:${issuer.adminPort}/.well-known/jwks.json`
  const verifier = await startSidecar(t, { upstreamUrl: upstream.url, jwksUrl })
  const [login] = issuer.logins
  if (login === undefined) {
    throw new Error('there is a login')
  }
  return {
    upstream,
    issuer,
    verifier,
    login,
    client: sidecarClient(verifier),
    atIssuer: sidecarClient(issuer),
  }
}

t.test('a verify-only sidecar accepts tokens of another sidecar and issues none', async (t) => {
  const { upstream, verifier, login, client, atIssuer } = await pair(t)
  const token = await atIssuer.login(login)
  t.equal(await client.check(token), 'ok')
  t.equal(await client.forward(token), 200)
  t.match(upstream.requests.at(-1)?.headers, {
    'x-authenticated-account-id': login.accountId,
    'x-authenticated-access-key': login.accessKey,
  })
  t.strictSame(await client.kids(), await atIssuer.kids())
  t.equal(await client.login(login), '503 ServiceNotReady')
  const post = 'POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}'
  t.match(await rawRequest(t, verifier.port, post), { status: 503, headers: { 'retry-after': /^\d+$/ } })
  const failures = 'auth_sidecar_token_issue_failures_total{reason="unavailable"}'
  t.equal(await verifier.metric(failures), 2)
  t.match(await client.ready(), {
    status: 200,
    checks: [{ name: 'keys', ok: true, loaded: true }, { name: 'accepting' }],
  })
})

t.test('a new key is fetched with its first token; unknown kids cause no further fetch', async (t) => {
  const { issuer, verifier, login, client, atIssuer } = await pair(t)
  t.equal(await client.check(await atIssuer.login(login)), 'ok')
  const { directory } = issuer.key
  const added = await runCommand(keysCommand, [
    'add',
    '--directory',
    directory,
    '--kid',
    'fresh',
    '--activate',
  ])
  t.match(added, { failure: undefined })
  let token = ''
  await eventually(async () => {
    token = await atIssuer.login(login)
    return decodeProtectedHeader(token).kid === 'fresh'
  }, 'the new key to sign')
  const fetches = 'auth_sidecar_jwks_fetches_total{issuer="storage-account-api",result="ok"}'
  const before = await verifier.metric(fetches)
  t.equal(await client.check(token), 'ok', 'at once')
  t.equal(await verifier.metric(fetches), before + 1)

  const madeUp = await mintToken({ key: await makeKey('ES256', 'made-up') })
  for (let times = 0; times < 5; times++) {
    t.equal(await client.check(madeUp), 'InvalidToken')
  }
  t.equal(await verifier.metric(fetches), before + 1, 'asking for it costs the issuer nothing')
})

t.test('a directory with public keys only verifies, and issues nothing', async (t) => {
  const key = await makeKey('ES256', 'elsewhere')
  const directory = await temporaryDirectory(t)
  writeKey(directory, key.publicJwk)
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    settings: { 'keys-directory': directory },
  })
  const client = sidecarClient(sidecar)
  t.equal(await client.check(await sidecar.mint({ key })), 'ok')
  for (const login of sidecar.logins) {
    t.equal(await client.login(login), '503 ServiceNotReady')
  }
  t.equal((await client.ready()).status, 200)
})

/** A process that waits for an issuer that is away; its ports, and how to let the issuer come. */
async function waiting(t: Test) {
  const [port = 0, adminPort = 0, issuerPort = 0] = await freePorts(3)
  const key = await makeKeyDirectory(t)
  const flags = {
    'listen-port': String(port),
    'admin-port': String(adminPort),
    'keys-jwks-url': `http://127.0.0.1:${issuerPort}/keys?canary`,
    'upstream-url': 'http://127.0.0.1:9',
    'shutdown-lame-duck-seconds': '0',
  }
  const program = startProgram(t, ['serve', ...serveArgs(flags)])
  const come = async (): Promise<Server> => {
    const body = JSON.stringify({ keys: [key.publicJwk] })
    const server = createServer((_req, res) => res.end(body)).listen(issuerPort, '127.0.0.1')
    t.teardown(() => server.close())
    await once(server, 'listening')
    return server
  }
  const client = sidecarClient({ port, adminPort })
  const readiness = () => client.ready().catch(() => undefined)
  await eventually(async () => (await readiness())?.status === 503, 'the admin listener')
  const isOpen = () => succeeds(rawClient(t, port))
  return { program, key, come, client, isOpen }
}

t.test('the start waits for an unreachable issuer before any client is accepted', async (t) => {
  const { program, key, come, client, isOpen } = await waiting(t)
  t.match(await client.ready(), {
    status: 503,
    checks: [
      { name: 'keys', ok: false },
      { name: 'accepting', ok: false },
    ],
  })
  t.notOk(await isOpen())
  await eventually(
    () => program.log().some(({ msg }) => msg === 'the JWK Set cannot be used, there is none yet'),
    'the line of the log',
  )
  await come()
  await eventually(async () => (await client.ready()).status === 200, 'being ready')
  t.equal(await client.check(await mintToken({ key })), 'ok')
  program.child.kill('SIGTERM')
  t.match(await program.ended, { code: 0, signal: null })
  t.notMatch(program.stdout() + program.stderr(), /canary/)
})

t.test('a stop during that wait ends the program at once with exit code 0', async (t) => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    const { program, isOpen } = await waiting(t)
    program.child.kill('SIGHUP')
    program.child.kill(signal)
    t.match(await program.ended, { code: 0, signal: null }, signal)
    t.match(program.log().at(-1), { msg: 'stopped', drained: 0, cut: 0 })
    t.notOk(program.log().some(({ msg }) => msg === 'listening'))
    t.equal(program.stderr(), '')
    t.notOk(await isOpen())
  }
})
