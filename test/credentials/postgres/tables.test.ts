import { chmod, writeFile } from 'node:fs/promises'
import t from 'tap'
import { migrate, tableEditors } from '../../../src/credentials/postgres/tables.ts'
import { generateSecret, hashSecret } from '../../../src/credentials/secret-hash.ts'
import { eventually, inTime } from '../../support/eventually.ts'
import { openStore } from '../../support/opened-database.ts'
import { requirePostgres } from '../../support/postgres.ts'

const server = await requirePostgres(t)
const { createDatabase, url } = server

const secret = generateSecret()
const secretHash = await hashSecret(secret, 'sha256')

t.test('migrate adds the scope to tables of an earlier version, with its constraint', async (t) => {
  const { urlFile, sql } = await createDatabase('tables')
  await tableEditors(urlFile).credentials.add({ accountId: 'acme', accessKey: 'AK1', secretHash })
  await sql('ALTER TABLE storage_auth.credentials DROP COLUMN scope')
  for (let run = 1; run <= 2; run++) {
    t.match(await migrate(urlFile), { ok: true })
  }
  const set = (scope: string) => sql(`UPDATE storage_auth.credentials SET scope = '${scope}'`)
  for (const bad of [
    '',
    ' ',
    'storage.read',
    'storage.write:/',
    'storage.read:/a  storage.read:/b',
    'storage.read:/é',
  ]) {
    await t.rejects(set(bad), { code: '23514' }, bad)
  }
  await set('storage.read:/a storage.modify:/b%20c')
  t.match(await tableEditors(urlFile).credentials.list(), {
    value: [{ scope: 'storage.read:/a storage.modify:/b%20c' }],
  })
  await set('storage.read:/a/../b')
  const warning = /^credentials, row 1: scope has an invalid item 1: .*: it is left out$/
  t.match(await tableEditors(urlFile).credentials.list(), { value: [], warnings: [warning] })
})

t.test(
  'migrate brings the tables of an earlier version up to date, which goes on to work with them',
  async (t) => {
    const { urlFile, sql, name } = await createDatabase('tables')
    // The tables and grants as version 0.1.0 has left them.
    await sql(`DROP TABLE storage_auth.history, storage_auth.removed_revocations, storage_auth.removed_credentials;
    DROP TRIGGER mark_credential ON storage_auth.credentials; DROP FUNCTION storage_auth.mark_credential;
    DROP TRIGGER record_credential_removal ON storage_auth.credentials;
    DROP FUNCTION storage_auth.record_credential_removal; DROP INDEX storage_auth.credentials_changed;
    ALTER TABLE storage_auth.credentials DROP COLUMN changed;
    ALTER TABLE storage_auth.revision DROP COLUMN credentials_reset;
    DROP TRIGGER record_removal ON storage_auth.revocations; DROP TRIGGER limit_ended ON storage_auth.revocations;
    DROP FUNCTION storage_auth.record_removal; DROP FUNCTION storage_auth.limit_ended;
    ALTER TABLE storage_auth.revision DROP COLUMN credentials_change, DROP COLUMN revocations_reset;
    ALTER TABLE storage_auth.revocations DROP COLUMN issuer, DROP COLUMN ended_by;
    ALTER TABLE storage_auth.credentials DROP COLUMN previous_secret_hash, DROP COLUMN previous_secret_expires_at;
    CREATE ROLE earlier LOGIN; GRANT USAGE ON SCHEMA storage_auth TO earlier;
    GRANT SELECT ON ALL TABLES IN SCHEMA storage_auth TO earlier;
    GRANT INSERT (jti, expires_at) ON storage_auth.revocations TO earlier`)
    for (let run = 1; run <= 2; run++) {
      t.match(await migrate(urlFile), { ok: true })
    }
    await writeFile(urlFile, url(name, 'earlier'))
    const replica = await openStore(t, urlFile, { pollMs: 20 })
    const token = { tokenId: 'new', issuer: 'us', accountId: 'acme', rowEndsAtSeconds: 4e9 }
    t.equal(await replica.endToken(token), 'ended', 'with the grants of the earlier version')
    const otherChange = async () => (await sql('SELECT other_change FROM storage_auth.revision'))[0]
    const before = await otherChange()
    await sql(
      `SET ROLE earlier; INSERT INTO storage_auth.revocations (jti, expires_at) VALUES ('old', to_timestamp(4e9))`,
    )
    await eventually(
      () => replica.revocations().size === 2,
      'the row of a running sidecar of the earlier version',
    )
    t.same(await otherChange(), before, 'which reads only new revocations')
    await sql(`DELETE FROM storage_auth.revocations WHERE jti = 'old'`)
    t.notSame(await otherChange(), before, 'and all rows after another change')
  },
)

t.test('migrate needs no right to create schemas if the schema exists', async (t) => {
  const database = await createDatabase('empty')
  await database.sql('CREATE ROLE owner LOGIN; CREATE SCHEMA storage_auth AUTHORIZATION owner')
  await writeFile(database.urlFile, url(database.name, 'owner'))
  t.match(await migrate(database.urlFile), { ok: true })
})

t.test('a database that is not UTF-8 is refused', async (t) => {
  const database = await createDatabase('empty')
  await database.sql(`CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
  await writeFile(database.urlFile, url('latin'))
  t.match(await migrate(database.urlFile), { problems: [/: its encoding must be UTF8$/] })
})

t.test('the tables refuse rows that a file could not contain', async (t) => {
  const { sql } = await createDatabase('tables')
  const insert = ([table, row]: readonly [string, object]) => {
    const columns = Object.keys(row).join()
    const parameters = Object.keys(row).map((_, index) => `$${index + 1}`)
    const text = `INSERT INTO storage_auth.${table} (${columns}) VALUES (${parameters.join()})`
    return sql(text, Object.values(row))
  }
  const good = { account_id: 'a', access_key: 'k', secret_hash: secretHash }
  for (const row of [
    ['credentials', { ...good, account_id: '' }],
    ['credentials', { ...good, account_id: '😀'.repeat(1025) }],
    ['credentials', { ...good, access_key: 'k\u007f' }],
    ['credentials', { ...good, secret_hash: 'secret' }],
    ['credentials', { ...good, expires_at: 'infinity' }],
    ['revocations', { issued_before: 'now' }],
    ['revocations', { jti: 'a', account_id: 'b' }],
    ['revocations', { jti: 'a', issued_before: 'now' }],
    ['revocations', { account_id: '\u0085' }],
  ] as const) {
    await t.rejects(insert(row), { code: '23514' }, JSON.stringify(row))
  }
  await insert(['credentials', { ...good, account_id: '😀'.repeat(1024), access_key: ' ~\u00a0' }])
  await insert(['revocations', { account_id: 'a', issued_before: 'now' }])
  await insert(['credentials', good])
  await t.rejects(insert(['credentials', good]), { code: '23505' }, 'nor a name twice')
})

t.test('an invalid row is omitted from the list, with a warning that names only its id', async (t) => {
  const database = await createDatabase('tables')
  await database.sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ('a', 'k', '$sha256$hush')`,
  )
  await chmod(database.urlFile, 0o644)
  t.same(await tableEditors(database.urlFile).credentials.list(), {
    ok: true,
    value: [],
    warnings: [
      `${database.urlFile} can be read by every user of this machine`,
      'credentials, row 1: secret_hash must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it: it is left out',
    ],
  })
})

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
  await eventually(() => results().length >= 5, 'the return, perhaps with the change')
  t.strictSame(results().slice(3, 5), ['failed', 'ok'])
})

t.test('a login fails fast while the database hangs', async (t) => {
  const replica = await openStore(t, database.urlFile)
  t.equal(await replica.store.authenticate(acme), 'accepted')
  await server.freeze()
  t.teardown(server.thaw)
  const logins = Array.from({ length: 50 }, () => replica.store.authenticate(acme))
  const verdicts = await inTime(Promise.all(logins), 'the refusals')
  t.same(new Set(verdicts), new Set(['unavailable']))
  await eventually(() => replica.state() === DOWN, 'the failure to be seen')
  t.equal(await replica.store.authenticate(acme), 'unavailable')
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
  await inTime(replica.stop(), 'the stop')
  t.equal(await inTime(login, 'the refusal'), 'unavailable')
  server.thaw()
})
