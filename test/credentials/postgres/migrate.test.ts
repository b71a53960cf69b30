import pg from 'pg'
import t from 'tap'
import { migrate } from '../../../src/credentials/postgres/migrate.ts'
import { MIGRATIONS } from '../../../src/credentials/postgres/schema.ts'
import { hashSecret } from '../../../src/credentials/secret-hash.ts'
import { NO_SERVER } from '../../support/opened-store.ts'
import { startPostgres } from '../../support/postgres.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}
const { createDatabase, url } = server

async function connect(t: { teardown(end: () => unknown): void }, target: string): Promise<pg.Client> {
  const client = new pg.Client(target)
  await client.connect()
  t.teardown(() => client.end())
  return client
}

t.test('migrating makes the tables, and again does nothing', async (t) => {
  const database = await createDatabase('empty')
  const client = await connect(t, database.url)
  t.same(await migrate(client), { version: 1, applied: [1] })
  const versions = 'SELECT version FROM storage_auth.migrations'
  t.same(await database.sql(versions), [{ version: 1 }])
  t.same(await migrate(client), { version: 1, applied: [] })
  t.same(await database.sql(versions), [{ version: 1 }])
})

t.test('any number of migrations at the same time end well, and one of them does the work', async (t) => {
  const database = await createDatabase('empty')
  const clients = await Promise.all(Array.from({ length: 5 }, () => connect(t, database.url)))
  const outcomes = await Promise.all(clients.map((client) => migrate(client)))
  t.same(
    outcomes.map(({ version }) => version),
    [1, 1, 1, 1, 1],
  )
  t.same(
    outcomes.flatMap(({ applied }) => applied),
    [1],
  )
})

t.test('a migration that fails leaves nothing behind, and none before it', async (t) => {
  const database = await createDatabase('empty')
  const client = await connect(t, database.url)
  const broken = [...MIGRATIONS, { version: 2, sql: 'CREATE TABLE storage_auth.more (); SELECT 1 / 0' }]
  await t.rejects(migrate(client, broken), { code: '22012' })
  t.same(await database.sql(`SELECT to_regnamespace('storage_auth') AS schema`), [{ schema: null }])
  const mended = [...MIGRATIONS, { version: 2, sql: 'CREATE TABLE storage_auth.more ()' }]
  t.same(await migrate(client, mended), { version: 2, applied: [1, 2] })
  t.same(await migrate(client), { version: 2, applied: [] }, 'an older program leaves it as it is')
})

t.test('a connection that is lost is what is told, not that nothing could be undone on it', async (t) => {
  const database = await createDatabase('empty')
  const client = await connect(t, database.url)
  client.on('error', () => {})
  const [{ sql } = { sql: '' }] = MIGRATIONS
  const cut = [{ version: 1, sql: `${sql}; SELECT pg_terminate_backend(pg_backend_pid())` }]
  await t.rejects(migrate(client, cut), { code: '57P01' })
  t.same(await database.sql(`SELECT to_regnamespace('storage_auth') AS schema`), [{ schema: null }])
})

t.test('a role that owns the schema need not be allowed to create others', async (t) => {
  const database = await createDatabase('empty')
  await database.sql('CREATE ROLE owner LOGIN; CREATE SCHEMA storage_auth AUTHORIZATION owner')
  const client = await connect(t, url(database.name, 'owner'))
  t.match(await migrate(client), { version: 1 })
})

t.test('a database that cannot hold every script is refused', async (t) => {
  const database = await createDatabase('empty')
  await database.sql(`CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
  const client = await connect(t, url('latin'))
  await t.rejects(migrate(client), {
    name: 'SchemaFailure',
    message: 'its encoding must be UTF8, not LATIN1',
  })
})

t.test('the tables let nothing in by hand that no file could hold', async (t) => {
  const database = await createDatabase('tables')
  const hash = await hashSecret('x', 'sha256')
  const credential = (columns: object) =>
    ['credentials', { account_id: 'a', access_key: 'k', secret_hash: hash, ...columns }] as const
  const revocation = (columns: object) => ['revocations', columns] as const
  const insert = ([table, columns]: readonly [string, object]) =>
    database.sql(
      `INSERT INTO storage_auth.${table} (${Object.keys(columns)}) VALUES (${Object.keys(columns).map((_, index) => `$${index + 1}`)})`,
      Object.values(columns),
    )
  for (const row of [
    credential({ account_id: '' }),
    credential({ account_id: '😀'.repeat(1025) }),
    credential({ account_id: 'a\n' }),
    credential({ access_key: 'k\u0001' }),
    credential({ access_key: 'k\u007f' }),
    credential({ access_key: 'k\u009f' }),
    credential({ secret_hash: 'secret' }),
    credential({ expires_at: 'infinity' }),
    credential({ expires_at: '10000-01-01T00:00:00Z' }),
    revocation({ issued_before: 'now' }),
    revocation({ jti: 'a', account_id: 'b' }),
    revocation({ jti: 'a', issued_before: 'now' }),
    revocation({ jti: '' }),
    revocation({ account_id: '\u0085' }),
    revocation({ access_key: 'k', issued_before: '-infinity' }),
  ]) {
    await t.rejects(insert(row), { code: '23514' }, JSON.stringify(row))
  }
  for (const row of [
    credential({ account_id: '😀'.repeat(1024), access_key: ' ~\u00a0', expires_at: '9999-12-31T23:59:59Z' }),
    revocation({ jti: 'a' }),
    revocation({ account_id: 'a', issued_before: 'now' }),
    revocation({ access_key: 'k' }),
  ]) {
    t.same(await insert(row), [])
  }
  await insert(credential({}))
  await t.rejects(insert(credential({})), { code: '23505' }, 'nor a name twice')
})
