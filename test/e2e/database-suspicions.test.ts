import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { runProgram } from '../support/program.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const server = await requirePostgres(t)
const NAMES = [
  { accountId: 'acme', accessKey: 'AK1' },
  { accountId: 'globex', accessKey: 'AK2' },
]
const NO_UPSTREAM = 'http://127.0.0.1:9'

/** A sidecar with a database of two credentials. */
async function withDatabase(t: Test) {
  const { database } = await databaseSetup(t, server.createDatabase, NAMES, 'a chosen secret')
  const settings = { 'credentials-postgres-url-file': database.urlFile }
  const start = () => startSidecar(t, { upstreamUrl: NO_UPSTREAM, settings })
  const revoke = (...accounts: string[]) =>
    database.sql('INSERT INTO storage_auth.revocations (account_id) SELECT unnest($1::text[])', [accounts])
  const sidecar = await start()
  const gauge = (metric: string, subject: string) =>
    sidecar.metric(`auth_sidecar_${metric}{subject="${subject}"}`)
  const isSuspect = (subject: string) => gauge('reload_suspect', subject)
  const becomes = (subject: string, expected: number, what: string) =>
    eventually(async () => (await isSuspect(subject)) === expected, what)
  const hasRevocations = (count: number) =>
    eventually(
      async () => (await sidecar.metric('auth_sidecar_revocations')) === count,
      `${count} revocations`,
    )
  const warnings = () => sidecar.log.filter(({ msg }) => msg === 'new version is suspect')
  return { database, sidecar, start, revoke, gauge, isSuspect, becomes, hasRevocations, warnings }
}

type Setup = Awaited<ReturnType<typeof withDatabase>>

/** Replaces the database by another one, as a restore does. The former one remains. */
async function swap({ database }: Setup, to: string, former: string): Promise<void> {
  await server.inServer(`ALTER DATABASE ${database.name} ALLOW_CONNECTIONS false`)
  await server.inServer(
    `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '${database.name}'`,
  )
  await server.inServer(`ALTER DATABASE ${database.name} RENAME TO ${former}`)
  await server.inServer(`ALTER DATABASE ${to} RENAME TO ${database.name}`)
  await server.inServer(`ALTER DATABASE ${database.name} ALLOW_CONNECTIONS true`)
}

async function backup({ database }: Setup, name: string): Promise<void> {
  await server.inServer(`ALTER DATABASE ${database.name} ALLOW_CONNECTIONS false`)
  await server.inServer(
    `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '${database.name}'`,
  )
  await server.inServer(`CREATE DATABASE ${name} TEMPLATE ${database.name}`)
  await server.inServer(`ALTER DATABASE ${database.name} ALLOW_CONNECTIONS true`)
}

t.test('a restore from an older backup is suspect until the state before it is back', async (t) => {
  const setup = await withDatabase(t)
  const { database, sidecar, revoke, isSuspect, becomes, hasRevocations, warnings } = setup
  await backup(setup, 'backup_1')
  await revoke('globex')
  await database.sql(`UPDATE storage_auth.credentials SET disabled = true WHERE account_id = 'acme'`)
  await hasRevocations(1)
  t.equal(await isSuspect('credentials'), 0)
  t.equal(await isSuspect('revocations'), 0)

  await swap(setup, 'backup_1', 'newer_1')
  await becomes('credentials', 1, 'an earlier state is back')
  await becomes('revocations', 1, 'one revocation is lost')
  t.match(warnings(), [
    { level: 40, subject: 'credentials', database: /127\.0\.0\.1/, suspicion: /^an earlier state is back/ },
    { level: 40, subject: 'revocations', database: /127\.0\.0\.1/, suspicion: /^1 revocation was lost/ },
  ])
  t.notMatch(JSON.stringify(warnings()), 'globex')
  const status = await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)).text()
  t.match(status, 'The newest credentials are probably a mistake')
  t.match(status, 'The newest revocations are probably a mistake')

  await swap(setup, 'newer_1', 'backup_1')
  await becomes('credentials', 0, 'the newer state')
  await becomes('revocations', 0, 'its revocation')
})

t.test('an operator accepts a restored database', async (t) => {
  const setup = await withDatabase(t)
  const { database, sidecar, revoke, becomes, hasRevocations } = setup
  await backup(setup, 'backup_2')
  await revoke('globex')
  await hasRevocations(1)
  await swap(setup, 'backup_2', 'newer_2')
  await becomes('credentials', 1, 'restored')
  await database.sql(`UPDATE storage_auth.credentials SET disabled = true WHERE account_id = 'acme'`)
  await eventually(
    async () => (await sidecar.metric('auth_sidecar_credentials_active')) === 1,
    'a change after the restore',
  )
  await becomes('credentials', 1, 'still suspect')
  await sidecar.app.reload()
  await becomes('credentials', 0, 'accepted')
  await becomes('revocations', 0, 'accepted')
})

t.test('revocations that one statement removes together are suspect until they are back', async (t) => {
  const { database, revoke, becomes, hasRevocations, warnings } = await withDatabase(t)
  for (const statement of ['DELETE FROM storage_auth.revocations', 'TRUNCATE storage_auth.revocations']) {
    await revoke('a', 'b', 'c')
    await hasRevocations(3)
    await becomes('revocations', 0, 'nothing is lost')
    await database.sql(statement)
    await becomes('revocations', 1, statement)
    t.match(warnings().at(-1), { subject: 'revocations', suspicion: /^3 revocations were lost/ })
  }
  await revoke('a', 'b', 'c')
  await becomes('revocations', 0, 'they are back')
})

t.test('revocations remove is no suspicion', async (t) => {
  const { database, revoke, isSuspect, hasRevocations } = await withDatabase(t)
  await revoke('a', 'a', 'b')
  await hasRevocations(3)
  for (const [account, left] of [
    ['a', 1],
    ['b', 0],
  ] as const) {
    const place = ['--postgres-url-file', database.urlFile, '--account', account]
    const { code, stderr } = await runProgram(t, ['revocations', 'remove', ...place])
    t.equal(code, 0, stderr)
    await hasRevocations(left)
    t.equal(await isSuspect('revocations'), 0)
  }
})

t.test('revocations of tokens that have ended may go', async (t) => {
  const { database, revoke, isSuspect, hasRevocations } = await withDatabase(t)
  await database.sql(`INSERT INTO storage_auth.revocations (account_id, issued_before)
    SELECT 'old' || n, '2020-01-01T00:00:00Z' FROM generate_series(1, 5) n`)
  await database.sql(`INSERT INTO storage_auth.revocations (jti, issuer, ended_by, expires_at)
    SELECT 'j' || n, 'storage-account-api', 'acme', now() - interval '1 s' FROM generate_series(1, 5) n`)
  await hasRevocations(10)
  await database.sql(`DELETE FROM storage_auth.revocations WHERE account_id IS NOT NULL`)
  await revoke('later') // removes those whose tokens have ended
  await hasRevocations(1)
  t.equal(await isSuspect('revocations'), 0)
})

t.test('credentials that became empty are suspect until there are some again', async (t) => {
  const { database, sidecar, becomes, warnings } = await withDatabase(t)
  const { sql } = database
  await sql('CREATE TABLE saved AS SELECT * FROM storage_auth.credentials')
  await sql('DELETE FROM storage_auth.credentials')
  await becomes('credentials', 1, 'empty')
  t.equal(await sidecar.metric('auth_sidecar_credentials_active'), 0)
  t.match(warnings(), [{ subject: 'credentials', suspicion: /became empty/ }])
  await sql('INSERT INTO storage_auth.credentials OVERRIDING SYSTEM VALUE SELECT * FROM saved')
  await becomes('credentials', 0, 'they are back')
})

t.test('replicas, and a file with the same content, have equal fingerprints', async (t) => {
  const { database, sidecar, start, revoke, gauge } = await withDatabase(t)
  await revoke('globex', 'initech')
  await database.sql(`UPDATE storage_auth.credentials SET scope = 'storage.read:/a', expires_at = '2999-01-01'
    WHERE account_id = 'acme'`)
  const other = await start()
  const subjects = ['credentials', 'revocations']
  const fingerprints = (sidecar: typeof other) =>
    Promise.all(
      subjects.map((subject) => sidecar.metric(`auth_sidecar_state_fingerprint{subject="${subject}"}`)),
    )
  const inDatabase = await fingerprints(other)
  t.ok(inDatabase.every((fingerprint) => fingerprint > 0))
  await eventually(
    async () => (await fingerprints(sidecar)).join() === inDatabase.join(),
    'the fingerprints of the other replica',
  )

  const [{ hash = '' } = {}] = await database.sql<{ hash: string }>(
    `SELECT secret_hash AS hash FROM storage_auth.credentials LIMIT 1`,
  )
  const directory = await temporaryDirectory(t)
  const credentials = join(directory, 'credentials.yaml')
  const revocations = join(directory, 'revocations.yaml')
  writeFileSync(
    credentials,
    `accounts:
  - accountId: globex
    credentials: [{ accessKey: AK2, secretHash: "${hash}" }]
  - accountId: acme # in another order than the rows
    credentials:
      - accessKey: AK1
        secretHash: "${hash}"
        scope: storage.read:/a
        expiresAt: 2999-01-01T00:00:00Z
`,
    { mode: 0o600 },
  )
  writeFileSync(revocations, 'revocations: [{ accountId: initech }, { accountId: globex }]\n')
  const ofFiles = await startSidecar(t, {
    upstreamUrl: NO_UPSTREAM,
    settings: { 'credentials-file': credentials, 'revocations-file': revocations },
  })
  t.same(await fingerprints(ofFiles), inDatabase)

  writeFileSync(credentials, readFileSync(credentials, 'utf8').replace('/a', '/b'))
  const [before] = inDatabase
  await eventually(async () => (await fingerprints(ofFiles))[0] !== before, 'another fingerprint')
  await database.sql(`DELETE FROM storage_auth.revocations WHERE account_id = 'initech'`)
  await eventually(async () => (await gauge('state_fingerprint', 'revocations')) !== inDatabase[1], 'another')
  await revoke('initech')
  await eventually(
    async () => (await gauge('state_fingerprint', 'revocations')) === inDatabase[1],
    'the former fingerprint',
  )
})
