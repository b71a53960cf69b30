import t from 'tap'
import { generateSecret, hashSecret } from '../../../src/credentials/secret-hash.ts'
import { eventually } from '../../support/eventually.ts'
import { NO_SERVER, openStore } from '../../support/opened-database.ts'
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

t.test('reloads fail during an outage and recover after it, even without a change', async (t) => {
  const replica = await openStore(t, database.urlFile)
  const results = () => replica.reloads
  const outage = async (meanwhile: () => Promise<unknown>) => {
    await server.freeze()
    t.teardown(server.thaw)
    await eventually(() => replica.state() === DOWN, 'the failure to be seen')
    server.thaw()
    await meanwhile()
    await eventually(() => replica.state() === 'current', 'the return to be seen')
  }
  await outage(async () => {})
  t.strictSame(results(), ['ok', 'failed', 'ok'])
  await outage(() => database.sql('UPDATE storage_auth.credentials SET disabled = false'))
  await eventually(() => results().length >= 6, 'the change')
  t.equal(results().at(-1), 'ok')
})

t.test('a login fails fast while the database hangs', async (t) => {
  const replica = await openStore(t, database.urlFile)
  t.equal(await replica.store.authenticate(acme), 'accepted')
  await server.freeze()
  t.teardown(server.thaw)
  const began = performance.now()
  const verdicts = await Promise.all(Array.from({ length: 50 }, () => replica.store.authenticate(acme)))
  t.same(new Set(verdicts), new Set(['unavailable']))
  await eventually(() => replica.state() === DOWN, 'the failure to be seen')
  t.equal(await replica.store.authenticate(acme), 'unavailable')
  t.ok(performance.now() - began < 5000)
  t.equal(replica.store.credentialStatus('acme', 'AK1').active, true)
  t.ok(replica.log.some(({ reason }) => reason === 'it does not answer in time'))
  server.thaw()
  await eventually(async () => (await replica.store.authenticate(acme)) === 'accepted', 'a login')
})

t.test('the store stops in bounded time while its database hangs', async (t) => {
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
