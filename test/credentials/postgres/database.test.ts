import { writeFile } from 'node:fs/promises'
import pg from 'pg'
import t, { type Test } from 'tap'
import { migrate, tableEditors } from '../../../src/credentials/postgres/tables.ts'
import { generateSecret, hashSecret } from '../../../src/credentials/secret-hash.ts'
import { makeCertificate } from '../../support/certificates.ts'
import { eventually } from '../../support/eventually.ts'
import { openStore, startStore } from '../../support/opened-database.ts'
import { requirePostgres, type TestDatabase } from '../../support/postgres.ts'

const authority = makeCertificate({ commonName: 'authority', authority: true })
const certificate = makeCertificate({ commonName: 'server', names: ['127.0.0.1'], issuer: authority })
const server = await requirePostgres(t, { certificate })
const { createDatabase, url } = server

const HOUR = 3_600_000
const secret = generateSecret()
const secretHash = await hashSecret(secret, 'sha256')

/** A database with one credential. */
async function withAcme(): Promise<TestDatabase> {
  const database = await createDatabase('tables')
  await insert(database, 'acme', 'AK1')
  return database
}

function insert({ sql }: TestDatabase, account: string, key: string): Promise<unknown> {
  const text =
    'INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ($1, $2, $3)'
  return sql(text, [account, key, secretHash])
}

/** Replaces the next commits. `replacement` may commit itself, by `commit`. */
function onCommit(
  t: Test,
  times: number,
  replacement: (commit: () => Promise<unknown>) => Promise<unknown>,
): void {
  const { query } = pg.Client.prototype
  let left = times
  t.intercept(pg.Client.prototype, 'query', {
    value(this: pg.Client, ...given: unknown[]) {
      const original = () => Reflect.apply(query, this, given)
      if (given[0] !== 'COMMIT' || left === 0) {
        return original()
      }
      left--
      return replacement(original)
    },
  })
}

/** Changes rows as a restore does: no trigger runs, so nothing records the change. */
function changeUnrecorded({ sql }: Pick<TestDatabase, 'sql'>, statements: string): Promise<unknown> {
  return sql(`BEGIN; SET LOCAL session_replication_role = replica; ${statements}; COMMIT`)
}

/** Which of the token ids are revoked. */
function revokedOf({ revocations }: Pick<Replica, 'revocations'>, tokenIds: readonly string[]): string[] {
  const token = { accountId: 'a', accessKey: 'k', issuedAtSeconds: 0 }
  return tokenIds.filter((tokenId) => revocations().isRevoked({ tokenId, ...token }))
}

const acme = { accountId: 'acme', accessKey: 'AK1', secret }
type Replica = Awaited<ReturnType<typeof openStore>>
type Store = { credentialStatus(account: string, key: string): { active: boolean } }
const isActive = ({ store }: { store: Store }) => store.credentialStatus('acme', 'AK1').active

t.test('a login uses the current state of the database', async (t) => {
  const database = await withAcme()
  // Only logins start an update: there is no poll for an hour.
  const { store } = await openStore(t, database.urlFile, { pollMs: HOUR })
  t.equal(await store.authenticate(acme), 'accepted')
  t.equal(await store.authenticate({ ...acme, secret: 'wrong' }), 'rejected')
  t.equal(await store.authenticate({ ...acme, accessKey: 'AK2' }), 'rejected')
  await insert(database, 'acme', 'AK2')
  t.equal(await store.authenticate({ ...acme, accessKey: 'AK2' }), 'accepted')
  const records = tableEditors(database.urlFile).credentials
  await records.update({ accountId: 'acme', accessKey: 'AK2' }, { disabled: true })
  t.equal(await store.authenticate({ ...acme, accessKey: 'AK2' }), 'rejected')
  await records.remove(acme)
  t.equal(await store.authenticate(acme), 'rejected')
})

t.test('any SQL change of the tables takes effect', async (t) => {
  const database = await withAcme()
  const { sql } = database
  const replica = await openStore(t, database.urlFile, { poolSize: 1 })
  const { store } = replica
  const statements: [string, () => boolean][] = [
    [`UPDATE storage_auth.credentials SET disabled = true`, () => !isActive(replica)],
    [`UPDATE storage_auth.credentials SET disabled = false`, () => isActive(replica)],
    [`UPDATE storage_auth.credentials SET expires_at = '2001-01-01T00:00:00Z'`, () => !isActive(replica)],
    [`UPDATE storage_auth.credentials SET expires_at = NULL`, () => isActive(replica)],
    [
      `UPDATE storage_auth.credentials SET account_id = 'other'`,
      () => !isActive(replica) && store.credentialStatus('other', 'AK1').active,
    ],
    [
      `BEGIN; DELETE FROM storage_auth.credentials; INSERT INTO storage_auth.credentials
        (account_id, access_key, secret_hash) VALUES ('acme', 'AK1', '${secretHash}'); COMMIT`,
      () => isActive(replica) && !store.credentialStatus('other', 'AK1').active,
    ],
    [`TRUNCATE storage_auth.credentials`, () => !isActive(replica)],
    [
      `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)
        SELECT 'acme', 'AK' || n, '${secretHash}' FROM generate_series(1, 5000) AS n`,
      () => isActive(replica) && store.credentialStatus('acme', 'AK5000').active,
    ],
    [
      `DELETE FROM storage_auth.credentials WHERE access_key <> 'AK1'`,
      () => !store.credentialStatus('acme', 'AK2').active,
    ],
    [`UPDATE storage_auth.credentials SET id = DEFAULT, disabled = true`, () => !isActive(replica)],
  ]
  for (const [statement, holds] of statements) {
    await sql(statement)
    await eventually(holds, statement)
  }
  t.same(new Set(replica.reloads), new Set(['ok']))
})

t.test('a change takes effect though its log line cannot be written', async (t) => {
  const database = await withAcme()
  const info = () => {
    throw new Error('no log')
  }
  const replica = await openStore(t, database.urlFile, { log: { info, warn() {} } })
  await database.sql('UPDATE storage_auth.credentials SET disabled = true')
  await eventually(() => replica.changes() === 1, 'the event')
})

t.test('revocations in tables have the same meaning as in a file', async (t) => {
  const { sql, urlFile } = await createDatabase('tables')
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('first')`)
  const { revocations } = await openStore(t, urlFile)
  const token = { tokenId: 'x', accountId: 'acme', accessKey: 'AK1', issuedAtSeconds: 1_800_000_000 }
  const revoked = (more: object = {}) => revocations().isRevoked({ ...token, ...more })
  t.equal(revoked(), false)
  t.equal(revoked({ tokenId: 'first' }), true)
  await sql(`INSERT INTO storage_auth.revocations (account_id, access_key, issued_before)
    VALUES ('acme', NULL, to_timestamp(1800000000)), (NULL, 'AK2', NULL)`)
  await eventually(() => revocations().size === 3, 'the revocations')
  t.equal(revoked(), false)
  t.equal(revoked({ issuedAtSeconds: 1_799_999_999 }), true)
  t.equal(revoked({ accessKey: 'AK2' }), true)
  await sql('TRUNCATE storage_auth.revocations')
  await eventually(() => revocations().size === 0, 'no revocations')
})

t.test('an invalid row is ignored and reported by its id; other rows stay valid', async (t) => {
  const database = await withAcme()
  const { sql } = database
  await sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ('acme', 'bad', '$sha256$hush')`,
  )
  const replica = await openStore(t, database.urlFile)
  t.equal(isActive(replica), true)
  t.equal(replica.store.credentialStatus('acme', 'bad').active, false)
  const problem =
    'credentials, row 2: secret_hash must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it'
  t.match(replica.log[0], { message: 'invalid row skipped', problem })
  t.equal(replica.reloads[0], 'failed')
  await sql(`UPDATE storage_auth.credentials SET secret_hash = '$scrypt$hush' WHERE id = 1`)
  await eventually(() => !isActive(replica), 'the change')
  t.notMatch(JSON.stringify(replica.log), /hush/)
})

t.test('a row with a previous secret that has no end is invalid', async (t) => {
  const database = await withAcme()
  await database.sql(`UPDATE storage_auth.credentials SET previous_secret_hash = secret_hash`)
  const replica = await openStore(t, database.urlFile)
  t.equal(isActive(replica), false)
  t.match(replica.log[0], {
    message: 'invalid row skipped',
    problem: /^credentials, row 1: previous_secret_expires_at /,
  })
})

t.test('a database restored from a backup is read again at any revision', async (t) => {
  const database = await withAcme()
  const { sql, urlFile } = database
  await sql('CREATE TABLE saved AS SELECT * FROM storage_auth.revision')
  const replica = await openStore(t, urlFile)
  await sql(`UPDATE storage_auth.credentials SET disabled = true`)
  await eventually(() => !isActive(replica), 'the change')
  await changeUnrecorded(
    database,
    `UPDATE storage_auth.credentials SET disabled = false;
    DELETE FROM storage_auth.revision; INSERT INTO storage_auth.revision SELECT * FROM saved`,
  )
  await eventually(() => isActive(replica), 'the restored state')
  // And another history from there on, to the same number.
  await sql(`UPDATE storage_auth.credentials SET disabled = true`)
  await eventually(() => !isActive(replica), 'the change')
  await changeUnrecorded(
    database,
    `UPDATE storage_auth.credentials SET disabled = false;
    UPDATE storage_auth.revision SET stamp = gen_random_uuid(), other_change = gen_random_uuid()`,
  )
  await eventually(() => isActive(replica), 'the other history')
  t.pass('both were noticed')
})

t.test('new revocations are read alone', async (t) => {
  const { sql, urlFile } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  /** Runs a statement, and waits until the replica has read a change of revocations alone. */
  const change = async (statement: string, what: string) => {
    const count = replica.changes()
    await sql(statement)
    await eventually(() => replica.changes() > count, what)
    t.equal(replica.onlyAdded.at(-1), true, what)
  }
  const revoke = (values: string, what: string) =>
    change(`INSERT INTO storage_auth.revocations (jti, account_id, expires_at) VALUES ${values}`, what)
  const ended = "now() - interval '1 second'"
  // It is not read while only revocations are new.
  await changeUnrecorded({ sql }, 'UPDATE storage_auth.credentials SET disabled = true')
  await revoke(`('a', NULL, NULL)`, 'the first')
  await revoke(`('b', NULL, now() + interval '1 day'), ('c', NULL, ${ended})`, 'two')
  await revoke(`('d', NULL, ${ended})`, 'the newest one has gone')
  t.same(await sql('SELECT jti FROM storage_auth.revocations ORDER BY id'), [
    { jti: 'a' },
    { jti: 'b' },
    { jti: 'd' },
  ])
  await revoke(`(NULL, 'acme', NULL)`, 'an account')
  t.same(revokedOf(replica, ['a', 'b', 'c', 'd', 'e']), ['a', 'b'])
  t.equal(isActive(replica), true)
  t.same(replica.reloads, ['ok', 'ok'], 'at the start and for the account; none for each logout')
  await revoke(`('a', NULL, NULL)`, 'one that was there')
  await change(`DELETE FROM storage_auth.revocations WHERE jti IN ('b', 'd')`, 'two taken back')
  await change(`DELETE FROM storage_auth.revocations WHERE id = 1`, 'one of two taken back')
  t.same(revokedOf(replica, ['a', 'b', 'd']), ['a'])
  await change(`DELETE FROM storage_auth.revocations WHERE jti = 'a' OR account_id = 'acme'`, 'all of them')
  t.same(revokedOf(replica, ['a']), [])
  t.equal(replica.revocations().size, 0)
  await revoke(`('e', NULL, NULL)`, 'a new one')
  await change(`UPDATE storage_auth.revocations SET jti = 'f'`, 'a changed one')
  t.same(revokedOf(replica, ['e', 'f']), ['f'])
  t.equal(isActive(replica), true, 'credentials were never read')
})

t.test('a row that is added and removed between two reads takes no other with it', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('a')`)
  const replica = await openStore(t, urlFile, { pollMs: HOUR })
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('a'), ('b')`)
  await sql(`DELETE FROM storage_auth.revocations WHERE id > 1`)
  t.equal(await replica.store.authenticate(acme), 'accepted', 'which reads the changes')
  t.same(revokedOf(replica, ['a', 'b']), ['a'])
  t.equal(replica.revocations().size, 1)
})

t.test('a change of a credential reads no revocation', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('a')`)
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  await changeUnrecorded({ sql }, 'DELETE FROM storage_auth.revocations')
  await sql('UPDATE storage_auth.credentials SET disabled = true')
  await eventually(() => !isActive(replica), 'the change')
  t.equal(replica.revocations().size, 1)
  await replica.reload()
  t.equal(replica.revocations().size, 0)
})

t.test('after more changes than the database remembers, all rows are read', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('a')`)
  const replica = await openStore(t, urlFile, { pollMs: HOUR })
  await sql(`DELETE FROM storage_auth.revocations; INSERT INTO storage_auth.revocations (jti) VALUES ('b');
    DELETE FROM storage_auth.history; DELETE FROM storage_auth.removed_revocations`)
  t.equal(await replica.store.authenticate(acme), 'accepted', 'which reads the changes')
  t.same(revokedOf(replica, ['a', 'b']), ['b'])
  t.equal(replica.revocations().size, 1)
  await sql(`UPDATE storage_auth.revision SET number = number + 20000`)
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('c')`)
  const old = await sql('SELECT FROM storage_auth.history WHERE number < 20000')
  t.same(old, [], 'the database remembers the last 10,000 only')
})

t.test('a token that is ended twice is one row, and no account fills the table', async (t) => {
  const { sql, urlFile } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  const inAnHour = Date.now() / 1000 + 3600
  const end = (tokenId: string, accountId = 'acme', issuer = 'us') =>
    replica.endToken({ tokenId, issuer, accountId, rowEndsAtSeconds: inAnHour })
  const five = await Promise.all(Array.from({ length: 5 }, () => end('one')))
  t.same(new Set(five), new Set(['ended']))
  t.equal(await end('one', 'acme', 'https://other'), 'ended')
  const rows = () => sql('SELECT jti, issuer, ended_by FROM storage_auth.revocations ORDER BY id')
  t.same(await rows(), [
    { jti: 'one', issuer: 'us', ended_by: 'acme' },
    { jti: 'one', issuer: 'https://other', ended_by: 'acme' },
  ])
  // Without triggers, each of which would count all rows before it.
  await sql(`BEGIN; SET LOCAL session_replication_role = replica;
    INSERT INTO storage_auth.revocations (jti, issuer, ended_by, expires_at)
    SELECT n, 'us', 'acme', now() + interval '1 hour' FROM generate_series(1, 9997) AS n; COMMIT`)
  const three = await Promise.all([end('a last one'), end('another'), end('one more')])
  t.same(three.toSorted(), ['ended', 'full', 'full'], 'one of them, on any connection, is the last')
  t.equal(await end('of another', 'other'), 'ended')
  t.match(await sql('SELECT count(*)::int FROM storage_auth.revocations'), [{ count: 10_001 }])
  await sql(`UPDATE storage_auth.revocations SET expires_at = now() - interval '1 second' WHERE jti = '1'`)
  t.equal(await end('later'), 'ended', 'once a token of the account has expired')
})

t.test(
  'a new revocation is active once the transaction that read it has ended, and counts once',
  async (t) => {
    const { sql, urlFile } = await withAcme()
    await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('first')`)
    const replica = await openStore(t, urlFile, { pollMs: 20 })
    const sizes: number[] = []
    onCommit(t, 1, async () => {
      sizes.push(replica.revocations().size)
      throw new Error('the connection is lost')
    })
    await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('next')`)
    await eventually(() => replica.changes() > 0, 'the new one')
    t.same(sizes, [1], 'at the commit')
    t.equal(replica.revocations().size, 2)
  },
)

t.test('a revocation that was read in vain is read again', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('first')`)
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  const sizes: number[] = []
  onCommit(t, 3, async (commit) => {
    sizes.push(replica.revocations().size)
    if (sizes.length < 3) {
      throw new Error('the connection is lost')
    }
    return commit()
  })
  await sql(`INSERT INTO storage_auth.revocations (account_id) VALUES ('acme')`)
  await eventually(() => replica.revocations().size === 2, 'the new one')
  t.same(sizes, [1, 1, 1], 'before the third commit, nothing new is active')
  t.same(replica.onlyAdded, [true])
})

t.test('a reload reads everything, even while new revocations are read', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('first')`)
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  await changeUnrecorded({ sql }, 'UPDATE storage_auth.credentials SET disabled = true')
  let reloaded: Promise<void> | undefined
  onCommit(t, 1, (commit) => {
    reloaded = replica.reload()
    return commit()
  })
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('next')`)
  await eventually(() => reloaded !== undefined, 'the reading of the new one')
  await reloaded
  t.equal(isActive(replica), false)
})

t.test('revocations of expired tokens leave the table and the memory with later ones', async (t) => {
  const { sql, urlFile } = await withAcme()
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('first')`)
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  await sql(`INSERT INTO storage_auth.revocations (jti, expires_at)
    SELECT n, CASE WHEN n < 10000 THEN now() - interval '1 second' END FROM generate_series(1, 10000) AS n`)
  await eventually(() => replica.changes() === 1, 'the new ones')
  t.equal(replica.revocations().size, 10_001)
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('next')`)
  await eventually(() => replica.changes() === 2, 'the next one')
  t.same(replica.onlyAdded, [true, true])
  t.equal(replica.revocations().size, 9002, 'without the thousand that the database has removed')
})

t.test('a query that has timed out waits no longer on the server for a lock', async (t) => {
  const { sql, urlFile, url } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('BEGIN; UPDATE storage_auth.revision SET number = number')
  const token = { tokenId: 'jti', issuer: 'us', accountId: 'acme', rowEndsAtSeconds: 4e9 }
  t.equal(await replica.endToken(token), 'unavailable')
  await holder.query('LOCK storage_auth.revision')
  await eventually(() => replica.state() !== 'current', 'a poll that fails')
  await replica.stop()
  const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`
  await eventually(async () => Object(await sql(waiting)).length === 0, 'the server')
  await holder.end()
  t.same(await sql('SELECT jti FROM storage_auth.revocations'), [])
})

t.test('revocations that commit in another order than they began are all found', async (t) => {
  const { urlFile, url } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: 5 })
  const writers = Array.from({ length: 8 }, () => new pg.Client(url))
  await Promise.all(writers.map((writer) => writer.connect()))
  const ids = await Promise.all(
    writers.map(async (writer, at) => {
      const own = Array.from({ length: 20 }, (_, count) => `${at}-${count}`)
      for (const jti of own) {
        await writer.query('INSERT INTO storage_auth.revocations (jti) VALUES ($1)', [jti])
      }
      await writer.end()
      return own
    }),
  )
  await eventually(() => replica.revocations().size >= 160, 'all')
  t.ok(replica.onlyAdded.every(Boolean))
  t.equal(replica.revocations().size, 160)
  t.same(revokedOf(replica, ids.flat()), ids.flat())
})

t.test('triggers that a restore has lost are noticed', async (t) => {
  const { sql, urlFile } = await withAcme()
  for (const [lose, restore] of [
    ['DROP TRIGGER record_change ON storage_auth.revocations', async () => migrate(urlFile)],
    [
      'ALTER TABLE storage_auth.credentials DISABLE TRIGGER record_change',
      async () => sql('ALTER TABLE storage_auth.credentials ENABLE TRIGGER record_change'),
    ],
  ] as const) {
    const replica = await openStore(t, urlFile, { pollMs: 20 })
    await sql(lose)
    await eventually(() => replica.state() !== 'current', 'the fault')
    const problem =
      /: triggers of its tables are missing or disabled: run `storage-auth-sidecar credentials migrate/
    t.match(await (await startStore(t, urlFile)).opened, { ok: false, problems: [problem] })
    t.equal(await replica.store.authenticate(acme), 'unavailable')
    await restore()
    await eventually(() => replica.state() === 'current', 'its end')
    await replica.stop()
  }
})

t.test('a change is read that was made while triggers were disabled', async (t) => {
  const { sql, urlFile } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: 20 })
  await sql(`ALTER TABLE storage_auth.credentials DISABLE TRIGGER ALL;
    UPDATE storage_auth.credentials SET disabled = true; ALTER TABLE storage_auth.credentials ENABLE TRIGGER ALL`)
  await eventually(() => !isActive(replica), 'the change')
})

t.test('read grants suffice, and missing grants are reported', async (t) => {
  const database = await withAcme()
  await database.sql('CREATE ROLE sidecar LOGIN; CREATE ROLE stranger LOGIN')
  await database.sql(`GRANT USAGE ON SCHEMA storage_auth TO sidecar;
    GRANT SELECT ON ALL TABLES IN SCHEMA storage_auth TO sidecar`)
  const as = async (role: string) => {
    const urlFile = `${database.urlFile}.${role}`
    await writeFile(urlFile, url(database.name, role))
    return urlFile
  }
  const replica = await openStore(t, await as('sidecar'))
  t.equal(await replica.store.authenticate(acme), 'accepted')
  await database.sql('UPDATE storage_auth.credentials SET disabled = true')
  await eventually(() => !isActive(replica), 'the change')
  t.equal(replica.changes(), 1)
  const forbidden = await tableEditors(await as('sidecar')).credentials.update(acme, { disabled: false })
  t.match(forbidden, { ok: false, problems: [/lacks a privilege/] })

  t.match(await (await startStore(t, await as('stranger'))).opened, {
    ok: false,
    problems: [/^\S+stranger: the database 127\.0\.0\.1:\d+\/test_\d+: this user lacks a privilege there: /],
  })
  await database.sql(`GRANT USAGE ON SCHEMA storage_auth TO stranger;
    GRANT SELECT, INSERT, UPDATE, DELETE ON storage_auth.credentials TO stranger`)
  const operator = tableEditors(await as('stranger')).credentials
  t.match(
    await operator.update(acme, { disabled: false }),
    { ok: true },
    'who may change credentials need not read the notes',
  )
  await eventually(() => isActive(replica), 'the change')
})

t.test('the store reports problems that need an operator', async (t) => {
  const empty = await createDatabase('empty')
  const old = await createDatabase('tables')
  await old.sql('ALTER TABLE storage_auth.credentials DROP COLUMN disabled')
  const noDatabase = `${empty.urlFile}.none`
  await writeFile(noDatabase, url('none'))
  const problems: [string, RegExp][] = [
    [
      empty.urlFile,
      /: its tables are missing: run `storage-auth-sidecar credentials migrate --postgres-url-file FILE`/,
    ],
    [old.urlFile, /: its tables are not up to date: run `storage-auth-sidecar credentials migrate/],
    [noDatabase, /: there is no database of that name$/],
  ]
  for (const [urlFile, problem] of problems) {
    t.match(await (await startStore(t, urlFile)).opened, { ok: false, problems: [problem] }, String(problem))
  }
})

t.test('tables without a revision are unusable, not current, until they are migrated', async (t) => {
  const database = await withAcme()
  const replica = await openStore(t, database.urlFile)
  await database.sql('DELETE FROM storage_auth.revision')
  await eventually(() => !/current/.test(String(replica.state())), 'the fault to be seen')
  t.equal(await replica.store.authenticate(acme), 'unavailable')
  t.equal(isActive(replica), true, 'the last snapshot stays active')
  const problem =
    /: its table storage_auth.revision has no row: run `storage-auth-sidecar credentials migrate --postgres/
  t.match(await (await startStore(t, database.urlFile)).opened, { ok: false, problems: [problem] })

  await database.sql('DELETE FROM storage_auth.credentials')
  t.match(await migrate(database.urlFile), { ok: true, value: false })
  await eventually(() => !isActive(replica), 'the change')
  t.equal(replica.state(), 'current')
})

t.test('TLS follows the URL, and an unverified server is not used', async (t) => {
  const database = await withAcme()
  const caFile = `${database.urlFile}.pem`
  await writeFile(caFile, authority.cert)

  const open = async (parameters: string) => {
    await writeFile(database.urlFile, `${database.url}?${parameters}`)
    const { opened, stop } = await startStore(t, database.urlFile)
    const outcome = await opened
    const encrypted = await database.sql(
      `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
       WHERE datname = current_database() AND application_name = 'storage-auth-sidecar'`,
    )
    await stop()
    return { opened: outcome, encrypted }
  }
  for (const parameters of [`sslmode=verify-full&sslrootcert=${caFile}`, 'sslmode=no-verify']) {
    t.match(await open(parameters), { opened: { ok: true }, encrypted: [{ ssl: true }] }, parameters)
  }
  t.match(await open('sslmode=disable'), { opened: { ok: true }, encrypted: [{ ssl: false }] })
  for (const parameters of ['sslmode=require', 'sslmode=verify-full']) {
    const problems = [/: its TLS certificate or protocol is not accepted \([A-Z_]+\)$/]
    t.match(await open(parameters), { opened: { ok: false, problems }, encrypted: [] }, parameters)
  }
})

t.test('a new URL in the file is used when the old one fails, or on a refresh', async (t) => {
  const first = await withAcme()
  const second = await withAcme()
  await second.sql('UPDATE storage_auth.credentials SET disabled = true')
  const urlFile = `${first.urlFile}.moving`
  await writeFile(urlFile, first.url)
  const replica = await openStore(t, urlFile, { pollMs: HOUR })
  await writeFile(urlFile, second.url)
  t.equal(await replica.store.authenticate(acme), 'accepted', 'a connection that works is kept')
  await replica.reload()
  t.equal(isActive(replica), false)
  await second.sql('UPDATE storage_auth.credentials SET disabled = false')
  t.equal(await replica.store.authenticate(acme), 'accepted', 'the change is read from the second database')

  await writeFile(urlFile, first.url)
  await first.sql('UPDATE storage_auth.credentials SET disabled = true')
  await second.sql('DROP SCHEMA storage_auth CASCADE')
  t.equal(await replica.store.authenticate(acme), 'rejected', 'no login was unavailable meanwhile')
  t.equal(replica.state(), 'current')
})

t.test('a refresh reads every row again', async (t) => {
  const { sql, urlFile } = await withAcme()
  const replica = await openStore(t, urlFile, { pollMs: HOUR })
  await changeUnrecorded({ sql }, 'UPDATE storage_auth.credentials SET disabled = true')
  t.equal(await replica.store.authenticate(acme), 'accepted', 'without triggers, the change is not seen')
  await replica.reload()
  t.equal(await replica.store.authenticate(acme), 'rejected')
})
