import { chmod, writeFile } from 'node:fs/promises'
import t from 'tap'
import type { Account } from '../../../src/credentials/accounts.ts'
import { inDatabase } from '../../../src/credentials/postgres/command.ts'
import { createPostgresEditor } from '../../../src/credentials/postgres/editor.ts'
import { importCredentials } from '../../../src/credentials/postgres/import.ts'
import { hashSecret, scryptDecoy, sha256Decoy } from '../../../src/credentials/secret-hash.ts'
import { NO_SERVER, openStore } from '../../support/opened-store.ts'
import { startPostgres, type TestDatabase } from '../../support/postgres.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}
const { createDatabase, port } = server

const secretHash = await hashSecret('hush', 'sha256')
const about = ({ urlFile, name }: TestDatabase) => `${urlFile}: the database 127.0.0.1:${port}/${name}: `

async function listed(database: TestDatabase): Promise<readonly Account[]> {
  const list = await createPostgresEditor(database.urlFile).list()
  if (!list.ok) throw new Error(list.problems.join())
  return list.accounts
}

t.test('credentials are added, listed, disabled, enabled and removed', async (t) => {
  const database = await createDatabase('tables')
  const editor = createPostgresEditor(database.urlFile)
  const acme = { accountId: 'acme', accessKey: 'AK1' }
  t.same(await editor.add({ ...acme, secretHash, expiresAt: '2027-01-31T08:00:00.5+02:00' }), { ok: true })
  t.same(await editor.add({ accountId: 'other', accessKey: 'AK1', secretHash }), { ok: true })
  t.same(await editor.add({ accountId: 'acme', accessKey: 'AK0', secretHash }), { ok: true })
  t.match(await listed(database), [
    {
      accountId: 'acme',
      credentials: [
        { accessKey: 'AK1', expiresAt: Date.parse('2027-01-31T06:00:00.5Z'), disabled: false },
        { accessKey: 'AK0', expiresAt: Number.POSITIVE_INFINITY },
      ],
    },
    { accountId: 'other', credentials: [{ accessKey: 'AK1' }] },
  ])
  t.same(await editor.setDisabled(acme, true), { ok: true })
  t.same(await editor.setDisabled(acme, true), { ok: true }, 'one that is so already stays so')
  t.equal((await listed(database))[0]?.credentials[0]?.disabled, true)
  t.same(await editor.setDisabled(acme, false), { ok: true })
  t.equal((await listed(database))[0]?.credentials[0]?.disabled, false)
  t.same(await editor.remove(acme), { ok: true })
  t.same(
    (await listed(database)).map(({ accountId }) => accountId),
    ['other', 'acme'],
  )
})

t.test('a name that is there is not added, and one that is not cannot be changed', async (t) => {
  const database = await createDatabase('tables')
  const editor = createPostgresEditor(database.urlFile)
  const acme = { accountId: 'acme', accessKey: 'AK1' }
  const refused = (problem: string) => ({ ok: false, unusable: false, problems: [about(database) + problem] })
  const unknown = refused('there is no credential of that account and access key')
  t.same(await editor.setDisabled(acme, true), unknown)
  t.same(await editor.remove(acme), unknown)
  const adds = await Promise.all([1, 2, 3].map(() => editor.add({ ...acme, secretHash })))
  const taken = refused('the account already has a credential of that access key')
  t.same(
    adds.sort((one, other) => Number(other.ok) - Number(one.ok)),
    [{ ok: true }, taken, taken],
  )
})

t.test('rows that cannot be used are left out of the list, with a warning', async (t) => {
  const database = await createDatabase('tables')
  await database.sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ('a', 'k', '$sha256$hush')`,
  )
  await chmod(database.urlFile, 0o644)
  t.same(await createPostgresEditor(database.urlFile).list(), {
    ok: true,
    accounts: [],
    warnings: [
      `${database.urlFile} can be read by every user of this machine`,
      'credentials, row 1: secret_hash must be a whole $sha256$ or $scrypt$ hash, as `credentials add` writes it: it is left out',
    ],
  })
})

t.test('why nothing could be done is told, and whether the place itself is at fault', async (t) => {
  const empty = await createDatabase('empty')
  const editor = createPostgresEditor(empty.urlFile)
  t.match(await editor.list(), { ok: false, unusable: true, problems: [/: its tables are missing: run /] })
  await writeFile(`${empty.urlFile}.bad`, 'hush')
  t.match(await createPostgresEditor(`${empty.urlFile}.bad`).list(), {
    ok: false,
    unusable: true,
    problems: [/: must hold one URL such as /],
  })
  await writeFile(`${empty.urlFile}.tls`, `${empty.url}?sslmode=require`)
  t.match(await createPostgresEditor(`${empty.urlFile}.tls`).list(), {
    ok: false,
    unusable: true,
    problems: [/: it does not offer TLS$/],
  })
  await writeFile(`${empty.urlFile}.away`, 'postgres://me:hush@127.0.0.1:1/accounts')
  t.same(await createPostgresEditor(`${empty.urlFile}.away`).list(), {
    ok: false,
    unusable: false,
    problems: [`${empty.urlFile}.away: the database 127.0.0.1:1/accounts: it refuses the connection`],
  })
})

t.test('a row that somebody else holds is not waited for without end', async (t) => {
  const database = await createDatabase('tables')
  await createPostgresEditor(database.urlFile).add({ accountId: 'acme', accessKey: 'AK1', secretHash })
  const times = { connectMs: 5000, lockMs: 50, statementMs: 5000 }
  const holding = await inDatabase(database.urlFile, async ({ query }) => {
    await query('BEGIN')
    await query('SELECT FROM storage_auth.credentials FOR UPDATE')
    return inDatabase(
      database.urlFile,
      async ({ query }) => {
        await query('DELETE FROM storage_auth.credentials')
        return { ok: true as const }
      },
      times,
    )
  })
  const problem = 'it reports: canceling statement due to lock timeout (55P03)'
  t.same(holding, { ok: false, unusable: false, problems: [about(database) + problem] })
})

t.test('a command leaves no connection behind, whatever became of it', async (t) => {
  const database = await createDatabase('tables')
  const open = `SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()`
  await createPostgresEditor(database.urlFile).list()
  await inDatabase(database.urlFile, ({ query }) => query('SELECT 1 / 0'))
  const broken = await inDatabase(database.urlFile, () => Promise.reject(new TypeError('a fault of ours')))
  t.match(broken, { ok: false, problems: [/a fault of ours/] })
  t.same(await database.sql(open), [])
})

const account = (accountId: string, ...accessKeys: string[]): Account => ({
  accountId,
  credentials: accessKeys.map((accessKey) => ({
    accessKey,
    secretHash: sha256Decoy(),
    expiresAt: Number.POSITIVE_INFINITY,
    disabled: false,
  })),
})

t.test('an import takes over everything, in order, as it is', async (t) => {
  const database = await createDatabase('tables')
  const slow = scryptDecoy({ cost: 2 ** 14, blockSize: 8, parallelization: 5 })
  const accounts: Account[] = [
    {
      accountId: 'a "quoted" \\ {name}, NULL',
      credentials: [{ accessKey: 'é', secretHash: slow, expiresAt: 1_800_000_000_500, disabled: true }],
    },
    account('acme', 'AK2', 'AK1'),
    account('NULL', ''.padEnd(3)),
  ]
  t.same(await importCredentials(database.urlFile, accounts, { replace: false }), {
    ok: true,
    imported: 4,
    replaced: 0,
  })
  t.same(await listed(database), accounts)
  t.same(await importCredentials(database.urlFile, [], { replace: false }), {
    ok: true,
    imported: 0,
    replaced: 0,
  })
})

t.test('an import takes over all or nothing', async (t) => {
  const database = await createDatabase('tables')
  await importCredentials(database.urlFile, [account('acme', 'AK1'), account('kept', 'AK1')], {
    replace: false,
  })
  const before = await listed(database)
  const wanted = [account('new', 'AK1'), account('acme', 'AK1', 'AK2')]
  t.same(await importCredentials(database.urlFile, wanted, { replace: false }), {
    ok: false,
    unusable: false,
    problems: [
      `${about(database)}nothing was imported: 1 of 3 credentials are there already (--replace takes over)`,
      `${about(database)}is there already: acme AK1`,
    ],
  })
  t.same(await listed(database), before)

  const replica = await openStore(t, database.urlFile)
  t.same(await importCredentials(database.urlFile, wanted, { replace: true }), {
    ok: true,
    imported: 3,
    replaced: 1,
  })
  const after = await listed(database)
  t.same(
    after.map(({ accountId }) => accountId),
    ['acme', 'kept', 'new'],
  )
  t.same(after[0], wanted[1], 'the secret is the one of the file')
  t.same(after[1], before[1])
  await replica.refresh()
  t.equal(replica.store.standing('acme', 'AK2').inForce, true)
})

t.test('of very many that are there already only some are named', async (t) => {
  const database = await createDatabase('tables')
  const many = [account('acme', ...Array.from({ length: 25 }, (_, index) => `AK${index}`))]
  await importCredentials(database.urlFile, many, { replace: false })
  const refused = await importCredentials(database.urlFile, many, { replace: false })
  if (refused.ok) throw new Error('it was not refused')
  t.equal(refused.problems.length, 22)
  t.match(refused.problems.at(-1), /: and 5 more$/)
})
