import { writeFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { createPostgresEditor } from '../../src/credentials/postgres/editor.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { NO_SERVER } from '../support/opened-store.ts'
import { startPostgres, type TestDatabase } from '../support/postgres.ts'
import { type Program, runProgram, serve, serveArgs, startProgram } from '../support/program.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}
const { createDatabase, kill, start, port } = server

const acme = { accountId: 'acme', accessKey: 'AK1', secret: 'a chosen secret' }
const names = ['--account', acme.accountId, '--access-key', acme.accessKey]

/** A database that holds one credential, with a password in its URL; and the flags of a sidecar that uses it. */
async function prepare(t: Test): Promise<{ database: TestDatabase; flags: Record<string, string> }> {
  const database = await createDatabase('tables')
  await writeFile(database.urlFile, database.url.replace('postgres@', 'postgres:hush-hush@'))
  // Quick to check, so that a test can log in often.
  const hash = await hashSecret(acme.secret, 'sha256')
  await database.sql(
    'INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ($1, $2, $3)',
    [acme.accountId, acme.accessKey, hash],
  )
  const [key, upstream] = [await makeKeyDirectory(t), await recordingUpstream(t)]
  upstream.reply(OK)
  const flags = {
    'keys-directory': key.directory,
    'credentials-postgres-url-file': database.urlFile,
    'upstream-url': upstream.url,
  }
  return { database, flags }
}

/** What a client does with one sidecar. */
function client({ port }: { readonly port: number }) {
  const base = `http://127.0.0.1:${port}`
  return {
    login: () =>
      fetch(`${base}/v2/auth/token`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(acme),
      }),
    get: async (token: string) => {
      const response = await fetch(`${base}/object`, { headers: { authorization: `Bearer ${token}` } })
      await response.arrayBuffer()
      return response.status
    },
  }
}

async function tokenOf(response: Response): Promise<string> {
  const answer: unknown = await response.json()
  if (typeof answer !== 'object' || answer === null || !('token' in answer)) throw new Error('no token')
  return String(answer.token)
}

function revoke({ sql }: TestDatabase, token: string): Promise<unknown> {
  const { jti } = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
  return sql('INSERT INTO storage_auth.revocations (jti) VALUES ($1)', [jti])
}

function noSecretIn(t: Test, ...programs: readonly Program[]): void {
  for (const { stdout, stderr } of programs) t.notMatch(stdout() + stderr(), /hush-hush|a secret that/)
}

t.test('a credential disabled by a command ends its logins and its tokens on every replica', async (t) => {
  const { database, flags } = await prepare(t)
  const replicas = await Promise.all([serve(t, flags), serve(t, flags)])
  const [one, other] = replicas.map(client)
  if (one === undefined || other === undefined) throw new Error('two were started')
  const token = await tokenOf(await one.login())
  t.same([await one.get(token), await other.get(token)], [200, 200], 'cached by both from now on')

  const place = ['--postgres-url-file', database.urlFile]
  const disabled = await runProgram(t, ['credentials', 'disable', ...place, ...names, '--json'])
  const changed = performance.now()
  t.match(disabled, {
    code: 0,
    stdout: '{"accountId":"acme","accessKey":"AK1","disabled":true}\n',
    stderr: '',
  })
  for (const { login } of [one, other]) t.equal((await login()).status, 403)
  await eventually(
    async () => (await one.get(token)) === 400 && (await other.get(token)) === 400,
    'the refusal',
  )
  t.ok(performance.now() - changed < 3000)

  await createPostgresEditor(database.urlFile).setDisabled(acme, false)
  t.equal((await other.login()).status, 200)
  await eventually(async () => (await one.get(token)) === 200, 'the token to be good again')
  const metrics = await (await fetch(`http://127.0.0.1:${replicas[1]?.adminPort}/metrics`)).text()
  t.match(metrics, /auth_sidecar_reloads_total\{subject="credentials",result="ok"\} [2-9]/)

  await t.test('a revocation written in SQL ends a cached token, and no other', async (t) => {
    const another = await tokenOf(await one.login())
    t.same([await other.get(token), await other.get(another)], [200, 200])
    await revoke(database, token)
    const changed = performance.now()
    await eventually(
      async () => (await one.get(token)) === 400 && (await other.get(token)) === 400,
      'the refusal',
    )
    t.ok(performance.now() - changed < 3000)
    t.same([await one.get(another), await other.get(another)], [200, 200])
  })
  noSecretIn(t, ...replicas)
})

t.test('while the database is down only logins are refused, and no restart is needed', async (t) => {
  const { database, flags } = await prepare(t)
  const sidecar = await serve(t, flags)
  const { login, get } = client(sidecar)
  const token = await tokenOf(await login())
  const [first, second] = [await tokenOf(await login()), await tokenOf(await login())]
  const statuses = { checks: new Map<number, number>(), logins: new Map<number, number>() }
  const count = (map: Map<number, number>, status: number) => map.set(status, (map.get(status) ?? 0) + 1)
  let going = true
  const load = [1, 2, 3, 4].map(async () => {
    while (going) {
      count(statuses.checks, await get(token))
      const response = await login()
      count(statuses.logins, response.status)
      await response.arrayBuffer()
    }
  })
  await eventually(() => (statuses.logins.get(200) ?? 0) > 20, 'logins')
  await revoke(database, first)
  await kill()
  await eventually(() => (statuses.logins.get(503) ?? 0) > 20, 'refused logins')
  const refused = await login()
  t.equal(refused.status, 503)
  t.match(refused.headers.get('retry-after'), /^\d+$/)
  t.match(await refused.json(), { code: 'ServiceNotReady' })
  const ready = await fetch(`http://127.0.0.1:${sidecar.adminPort}/readyz`)
  t.equal(ready.status, 200)
  const state = 'database down, last snapshot active'
  t.match(await ready.json(), { checks: [{ name: 'keys' }, { name: 'credentials', ok: true, state }] })
  await start()
  await revoke(database, second)
  for (const revoked of [first, second]) {
    await eventually(async () => (await get(revoked)) === 400, 'the changes right before and after')
  }
  const before = statuses.logins.get(200) ?? 0
  await eventually(() => (statuses.logins.get(200) ?? 0) > before + 20, 'logins')
  going = false
  await Promise.all(load)
  t.same([...statuses.checks.keys()], [200])
  t.same([...statuses.logins.keys()].sort(), [200, 503])
  t.comment(
    `token checks: ${JSON.stringify([...statuses.checks])}, logins: ${JSON.stringify([...statuses.logins])}`,
  )
  noSecretIn(t, sidecar)
})

const WAITING = 'waiting for the credentials database'
const waits = ({ log }: Program) => log().some(({ msg }) => msg === WAITING)

t.test('a sidecar starts to serve once its database is reachable', async (t) => {
  const { flags } = await prepare(t)
  await kill()
  t.teardown(start)
  const adminPort = await freePort()
  const program = startProgram(t, ['serve', ...serveArgs({ ...flags, 'admin-port': String(adminPort) })])
  await program.until(() => waits(program), 'the wait')
  const status = async (path: string) => (await fetch(`http://127.0.0.1:${adminPort}${path}`)).status
  await eventually(async () => (await status('/livez').catch(() => 0)) === 200, 'the admin listener')
  t.equal(await status('/readyz'), 503)
  const listening = () => program.log().find(({ listener }) => listener === 'data')
  t.equal(listening(), undefined)
  await start()
  await program.until(listening, 'the data listener')
  t.equal((await client({ port: Number(listening()?.['port']) }).login()).status, 200)
  t.equal(await status('/readyz'), 200)
  t.equal(program.log().filter(({ msg }) => msg === WAITING).length, 1, 'not every try is logged')
  noSecretIn(t, program)
})

t.test('a sidecar that waits for its database can be stopped', async (t) => {
  const { flags } = await prepare(t)
  await kill()
  t.teardown(start)
  const program = startProgram(t, ['serve', ...serveArgs(flags)])
  await program.until(() => waits(program), 'the wait')
  program.child.kill('SIGINT')
  t.match(await program.ended, { code: 0, signal: null })
  t.equal(program.stderr(), '')
})

t.test('a permanent database error is reported with its remedy and exits with 2', async (t) => {
  const { flags } = await prepare(t)
  const { urlFile, name } = await createDatabase('empty')
  const place = `${urlFile}: the database 127.0.0.1:${port}/${name}: `
  t.match(
    await runProgram(t, ['serve', ...serveArgs({ ...flags, 'credentials-postgres-url-file': urlFile })]),
    {
      code: 2,
      stderr: `${place}its tables are missing: run \`storage-auth-sidecar credentials migrate`,
    },
  )
})
