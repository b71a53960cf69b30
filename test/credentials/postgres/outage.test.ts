import t from 'tap'
import { openPostgresStore, type PostgresStore } from '../../../src/credentials/postgres/store.ts'
import { generateSecret, hashSecret } from '../../../src/credentials/secret-hash.ts'
import { eventually } from '../../support/eventually.ts'
import { NO_SERVER, openStore } from '../../support/opened-store.ts'
import { startPostgres } from '../../support/postgres.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}

const secret = generateSecret()
const secretHash = await hashSecret(secret, 'sha256')
const database = await server.createDatabase('tables')
await database.sql(
  `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ('acme', 'AK1', $1)`,
  [secretHash],
)
const acme = { accountId: 'acme', accessKey: 'AK1', secret }
const DOWN = 'database down, last snapshot active'

/** Logs in and checks a token's standing, until `stop` is called. */
function load({ store }: PostgresStore) {
  const verdicts = new Map<string, number>()
  let going = true
  let standings = 0
  let lost = 0
  const workers = Array.from({ length: 20 }, async () => {
    while (going) {
      const verdict = await store.authenticate(acme)
      verdicts.set(verdict, (verdicts.get(verdict) ?? 0) + 1)
      standings++
      if (!store.standing('acme', 'AK1').active) lost++
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
  })
  return {
    count: (verdict: string) => verdicts.get(verdict) ?? 0,
    async stop() {
      going = false
      await Promise.all(workers)
      return { verdicts: [...verdicts.keys()].sort(), standings, lost }
    },
  }
}

t.test('a server that is killed under load costs logins alone, and comes back by itself', async (t) => {
  const replica = await openStore(t, database.urlFile)
  const running = load(replica)
  await eventually(() => running.count('accepted') > 100, 'logins')
  await server.kill()
  await eventually(() => running.count('unavailable') > 100, 'refused logins')
  t.same(replica.ready(), { name: 'credentials', ok: true, state: DOWN }, 'it stays ready')
  await server.start()
  const before = running.count('accepted')
  await eventually(() => running.count('accepted') > before + 100, 'logins')
  t.equal(replica.ready().state, 'current')
  const { verdicts, standings, lost } = await running.stop()
  t.comment(
    `while it was away, ${running.count('unavailable')} logins were unavailable, ${lost} of ${standings} checks failed`,
  )
  t.same(verdicts, ['accepted', 'unavailable'], 'no right secret was rejected')
  t.equal(lost, 0)
  const away = replica.log.filter(({ message }) => /is (down|back)/.test(String(message)))
  t.match(away, [{ reason: /^(it|the connection) / }, { message: 'the credentials database is back' }])
  t.equal(away.length, 2, 'logged once, not for each login')

  await database.sql('UPDATE storage_auth.credentials SET disabled = true')
  await eventually(() => !replica.store.standing('acme', 'AK1').active, 'a change after the return')
  await database.sql('UPDATE storage_auth.credentials SET disabled = false')
})

t.test('an outage is a failed reload until it is over, with and without a change meanwhile', async (t) => {
  const replica = await openStore(t, database.urlFile)
  const results = () => replica.reloads.map(([result]) => result)
  const outage = async (meanwhile: () => Promise<unknown>) => {
    await server.freeze()
    t.teardown(server.thaw)
    await eventually(() => replica.ready().state === DOWN, 'the failure to be seen')
    server.thaw()
    await meanwhile()
    await eventually(() => replica.ready().state === 'current', 'the return to be seen')
  }
  await outage(async () => {})
  t.strictSame(results(), ['ok', 'failed', 'ok'])
  await outage(() => database.sql('UPDATE storage_auth.credentials SET disabled = false'))
  await eventually(() => results().length >= 6, 'the change')
  t.equal(results().at(-1), 'ok')
})

t.test('a login does not wait long for a server that hangs', async (t) => {
  const replica = await openStore(t, database.urlFile)
  t.equal(await replica.store.authenticate(acme), 'accepted')
  await server.freeze()
  t.teardown(server.thaw)
  const began = performance.now()
  const verdicts = await Promise.all(Array.from({ length: 50 }, () => replica.store.authenticate(acme)))
  t.same(new Set(verdicts), new Set(['unavailable']))
  await eventually(() => replica.ready().state === DOWN, 'the failure to be seen')
  t.equal(await replica.store.authenticate(acme), 'unavailable')
  t.ok(performance.now() - began < 5000)
  t.equal(replica.store.standing('acme', 'AK1').active, true)
  t.ok(replica.log.some(({ reason }) => reason === 'it does not answer in time'))
  server.thaw()
  await eventually(async () => (await replica.store.authenticate(acme)) === 'accepted', 'a login')
})

t.test('a store stops in bounded time while its server hangs', async (t) => {
  const replica = await openStore(t, database.urlFile)
  await server.freeze()
  t.teardown(server.thaw)
  const login = replica.store.authenticate(acme)
  const began = performance.now()
  await replica.stop()
  t.equal(await login, 'unavailable')
  t.ok(performance.now() - began < 3000)
  server.thaw()
})

t.test('at the start it waits until the server is there', async (t) => {
  await server.kill()
  const log: unknown[] = []
  const write = (fields: object, message: string) => void log.push({ ...fields, message })
  const opening = openPostgresStore({
    urlFile: database.urlFile,
    now: Date.now,
    log: { info: write, warn: write },
    onChange: () => {},
  })
  await eventually(() => log.length > 0, 'the first failure')
  t.match(log[0], {
    message: 'waiting for the credentials database',
    reason: 'the connection failed (ECONNREFUSED)',
    database: `127.0.0.1:${server.port}/${database.name}`,
  })
  await server.start()
  const opened = await opening
  if (!opened.ok) throw new Error(opened.problems.join())
  t.teardown(opened.stop)
  t.equal(await opened.store.authenticate(acme), 'accepted')
  t.equal(log.length, 2, 'and not once for each try')
})

t.test('the wait at the start can be ended', async (t) => {
  await server.kill()
  const stop = new AbortController()
  const options = { urlFile: database.urlFile, now: Date.now, onChange: () => {} }
  const log = { info() {}, warn: () => stop.abort() }
  const opened = await openPostgresStore({ ...options, log, signal: stop.signal })
  t.match(opened, { ok: false, problems: [/: stopped before it could be reached$/] })
})
