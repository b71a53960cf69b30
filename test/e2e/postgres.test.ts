import { writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { tableEditors } from '../../src/credentials/postgres/tables.ts'
import { eventually, inTime, SOON_MS } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { databaseSetup, requirePostgres, type TestDatabase } from '../support/postgres.ts'
import { type Program, runProgram, serve, serveArgs, startProgram } from '../support/program.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const server = await requirePostgres(t)
const { createDatabase, freeze, kill, port, start, thaw } = server

const acme = { accountId: 'acme', accessKey: 'AK1', secret: 'a chosen secret' }
const names = ['--account', acme.accountId, '--access-key', acme.accessKey]

/**
 * A database that holds one credential, with a password in its URL; and the flags of a sidecar that uses it.
 */
async function prepare(t: Test) {
  const setup = await databaseSetup(t, createDatabase, [acme], acme.secret)
  const { urlFile, url } = setup.database
  await writeFile(urlFile, url.replace('postgres@', 'postgres:hush-hush@'))
  return setup
}

function revoke({ sql }: TestDatabase, token: string): Promise<unknown> {
  return sql('INSERT INTO storage_auth.revocations (jti) VALUES ($1)', [decodeJwt(token).jti])
}

function noSecretIn(t: Test, ...programs: readonly Program[]): void {
  for (const { stdout, stderr } of programs) {
    t.notMatch(stdout() + stderr(), /hush-hush|a secret that/)
  }
}

t.test('a credential disabled by a command ends its logins and its tokens on every replica', async (t) => {
  const { database, flags } = await prepare(t)
  const replicas = await Promise.all([serve(t, flags), serve(t, flags)])
  const [one, other] = replicas.map(sidecarClient)
  if (one === undefined || other === undefined) {
    throw new Error('two were started')
  }
  const token = await one.login(acme)
  t.same([await one.forward(token), await other.forward(token)], [200, 200], 'cached by both from now on')

  const place = ['--postgres-url-file', database.urlFile]
  const disabled = await runProgram(t, ['credentials', 'disable', ...place, ...names, '--json'])
  t.match(disabled, {
    code: 0,
    stdout: '{"accountId":"acme","accessKey":"AK1","disabled":true}\n',
    stderr: '',
  })
  for (const { login } of [one, other]) {
    t.equal(await login(acme), '403 Authentication failed')
  }
  const isRefused = async () => (await one.forward(token)) === 400 && (await other.forward(token)) === 400
  await eventually(isRefused, 'the refusal', SOON_MS)

  await tableEditors(database.urlFile).credentials.update(acme, { disabled: false })
  t.equal(await other.forward(await other.login(acme)), 200)
  await eventually(async () => (await one.forward(token)) === 200, 'the token to be good again')
  const metrics = await (await fetch(`http://127.0.0.1:${replicas[1]?.adminPort}/metrics`)).text()
  t.match(metrics, /auth_sidecar_reloads_total\{subject="credentials",result="ok"\} [2-9]/)

  await t.test('a revocation written in SQL ends a cached token, and no other', async (t) => {
    const another = await one.login(acme)
    t.same([await other.forward(token), await other.forward(another)], [200, 200])
    await revoke(database, token)
    await eventually(isRefused, 'the refusal', SOON_MS)
    t.same([await one.forward(another), await other.forward(another)], [200, 200])
  })
  noSecretIn(t, ...replicas)
})

t.test('while the database is down only logins are refused, and no restart is needed', async (t) => {
  const { database, flags } = await prepare(t)
  const sidecar = await serve(t, flags)
  const { login, forward, ready } = sidecarClient(sidecar)
  const token = await login(acme)
  const first = await login(acme)
  const second = await login(acme)
  const checks = new Set<number>()
  const logins = { accepted: 0, refused: 0 }
  let going = true
  const load = [1, 2, 3, 4].map(async () => {
    while (going) {
      await sleep(25) // other processes want the cores, too
      checks.add(await forward(token))
      const answer = await login(acme)
      if (answer === '503 ServiceNotReady') {
        logins.refused++
      } else if (answer.split('.').length === 3) {
        logins.accepted++
      } else {
        t.fail(answer)
      }
    }
  })
  await eventually(() => logins.accepted > 20, 'logins')
  await revoke(database, first)
  await kill()
  await eventually(() => logins.refused > 20, 'refused logins')
  const state = 'database down, last snapshot active'
  const checksAre = [{ name: 'keys' }, { name: 'credentials', ok: true, state }]
  t.match(await ready(), { status: 200, checks: checksAre })
  await start()
  await revoke(database, second)
  for (const revoked of [first, second]) {
    await eventually(async () => (await forward(revoked)) === 400, 'the changes right before and after')
  }
  const before = logins.accepted
  await eventually(() => logins.accepted > before + 20, 'logins')
  going = false
  await Promise.all(load)
  t.same([...checks], [200])
  t.comment(`logins: ${JSON.stringify(logins)}`)
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
  const served = sidecarClient({ port: Number(listening()?.['port']), adminPort })
  t.equal(await served.forward(await served.login(acme)), 200)
  t.equal(await status('/readyz'), 200)
  t.equal(program.log().filter(({ msg }) => msg === WAITING).length, 1, 'not every try is logged')
  noSecretIn(t, program)
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

t.test('config check --files connects to the database, or says that it did not', async (t) => {
  const { database, flags } = await prepare(t)
  const [{ hba_file: hba } = {}] = await database.sql<{ hba_file: string }>('SHOW hba_file')
  const rules = ['host all checked 127.0.0.1/32 scram-sha-256', 'host all all 127.0.0.1/32 trust']
  await database.sql(`COPY (VALUES ('${rules.join("'), ('")}')) TO '${hba}'`)
  await database.sql('SELECT pg_reload_conf()')
  await database.sql("CREATE ROLE checked LOGIN PASSWORD 'hush-hush'")
  const check = async (url: string) => {
    await writeFile(database.urlFile, url)
    const checked = runProgram(t, ['config', 'check', '--files', ...serveArgs(flags)])
    const outcome = await inTime(checked, 'the command to end')
    t.notMatch(outcome.stdout + outcome.stderr, /hush|wrong/)
    return outcome
  }
  const place = `${database.urlFile}: the database 127.0.0.1:${port}/${database.name}`
  const url = (user: string) => database.url.replace('postgres@', user)
  t.match(await check(database.url), { code: 0, stderr: '' })
  for (const [user, problem] of [
    ['checked:wrong@', 'it refuses this user or the password'],
    ['checked:hush-hush@', 'this user lacks a privilege there'],
  ] as const) {
    t.match(await check(url(user)), { code: 2, stderr: `credentials.postgres.urlFile: ${place}: ${problem}` })
  }
  await freeze()
  const silent = await check(database.url)
  thaw()
  t.match(silent, { code: 0 })
  t.match(silent.stderr, `warning: not checked: ${place}: it does not answer in time`)
  const slow = createServer((client) => {
    const server = connect(port, '127.0.0.1')
    client.on('error', () => {}).pipe(server)
    server.on('data', (bytes) => setTimeout(() => client.write(bytes), 1500))
  })
  const slowUrl = database.url.replace(String(port), String(await listen(t, slow)))
  t.match((await check(slowUrl)).stderr, 'it does not answer in time')
  t.match(await check('postgres://me:hush@db.example/accounts'), {
    code: 2,
    stderr: 'needs ?sslmode=verify-full',
  })
})
