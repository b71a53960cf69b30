/** Credentials that are read by their changes are those that are there, whatever has changed. */
import fc from 'fast-check'
import pg from 'pg'
import t from 'tap'
import { type Credential, CredentialList } from '../../../src/credentials/credential-list.ts'
import { SnapshotReader } from '../../../src/credentials/postgres/snapshot.ts'
import { generateSecret, hashSecret } from '../../../src/credentials/secret-hash.ts'
import { requirePostgres } from '../../support/postgres.ts'

const sha256 = await hashSecret(generateSecret(), 'sha256')
const HASHES = [
  sha256,
  '$scrypt$ln=14,r=8,p=5$c2FsdHNhbHRzYWx0c2FsdA$aaaa',
  '$scrypt$ln=14,r=8,p=5$c2FsdHNhbHRzYWx0c2FsdA$bbbb',
  '$scrypt$ln=13,r=8,p=10$c2FsdHNhbHRzYWx0c2FsdA$cccc',
]

const name = fc.constantFrom('a', 'b', 'c')
const credential: fc.Arbitrary<Credential> = fc.record({
  accountId: name,
  accessKey: name,
  secretHash: fc.constantFrom(...HASHES),
  previousSecretHash: fc.constantFrom(null, ...HASHES),
  expiresAtMs: fc.constant(Number.POSITIVE_INFINITY),
  disabled: fc.boolean(),
})
const step = fc.record({ credential, isRemoved: fc.boolean() })

/** All that a list says. */
function answers(list: CredentialList) {
  const names = ['a', 'b', 'c', 'd']
  return {
    fingerprint: list.fingerprint,
    size: list.size,
    accounts: names.map((accountId) => list.hasAccount(accountId)),
    accessKeys: names.map((accessKey) => list.findByAccessKey(accessKey)),
    scrypt: names.map((accountId) => list.scryptParametersFor({ accountId, accessKey: 'x' })),
  }
}

t.test('a list that was changed is equal to one that was made of what it has', async (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const changed = new CredentialList()
      for (const { credential, isRemoved } of steps) {
        if (isRemoved) {
          changed.remove(credential)
        } else {
          changed.add(credential)
        }
      }
      const fresh = new CredentialList()
      for (const each of changed.all()) {
        fresh.add(each)
      }
      t.same(answers(changed), answers(fresh))
    }),
    { numRuns: 300 },
  )
})

const server = await requirePostgres(t)

async function readers(t: { teardown(end: () => unknown): unknown }) {
  const { urlFile, url, sql } = await server.createDatabase('tables')
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  t.teardown(() => pool.end())
  const ended = () => ({ nowMs: Date.now(), issuedBeforeMs: 0 })
  const incremental = new SnapshotReader(ended)
  const insert = (...names: readonly string[]) =>
    sql(
      `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)
       SELECT 'acme', key, $2 FROM unnest($1::text[]) AS given (key)`,
      [names, sha256],
    )
  const names = (list: CredentialList) =>
    list
      .all()
      .filter(({ disabled }) => !disabled)
      .map(({ accountId, accessKey }) => `${accountId}/${accessKey}`)
      .sort()
  return {
    urlFile,
    sql,
    insert,
    /** What the incremental reader has, after a comparison with one that reads all. */
    async read() {
      const snapshot = await incremental.read(pool, false)
      const whole = await new SnapshotReader(ended).read(pool, false)
      const { credentials, problems, changedCredentials } = snapshot
      return {
        names: names(credentials),
        isEqual: credentials.fingerprint === whole.credentials.fingerprint,
        areProblemsEqual: problems.toSorted().join() === whole.problems.toSorted().join(),
        problems: problems.length,
        changed: changedCredentials?.map(({ accessKey }) => accessKey).sort(),
      }
    },
  }
}

const asFresh = { isEqual: true, areProblemsEqual: true }

t.test('only what has changed is read', async (t) => {
  const { sql, insert, read } = await readers(t)
  await insert('k1', 'k2', 'k3', 'k4')
  t.match(await read(), { ...asFresh, changed: undefined })
  t.match(await read(), { ...asFresh, changed: [] })
  await sql(`UPDATE storage_auth.credentials SET disabled = true WHERE access_key = 'k1'`)
  t.match(await read(), { ...asFresh, changed: ['k1'], names: ['acme/k2', 'acme/k3', 'acme/k4'] })
  await sql(`DELETE FROM storage_auth.credentials WHERE access_key = 'k2'`)
  t.match(await read(), { ...asFresh, changed: ['k2'], names: ['acme/k3', 'acme/k4'] })
  await insert('k5')
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('a')`)
  t.match(await read(), { ...asFresh, changed: ['k5'] })
  await insert('k6')
  await sql(`DELETE FROM storage_auth.credentials WHERE access_key IN ('k6', 'k3')`)
  await insert('k3')
  t.match(await read(), { ...asFresh, changed: ['k3', 'k3', 'k6'], names: ['acme/k3', 'acme/k4', 'acme/k5'] })
  await sql(`INSERT INTO storage_auth.revocations (jti) VALUES ('b')`)
  t.match(await read(), { ...asFresh, changed: [] })
})

t.test('rows that nothing recorded are not read with others', async (t) => {
  const { sql, insert, read } = await readers(t)
  await insert('k1', 'k2')
  await read()
  await sql(`BEGIN; SET LOCAL session_replication_role = replica;
    DELETE FROM storage_auth.credentials WHERE access_key = 'k1'; COMMIT`)
  await sql(`UPDATE storage_auth.credentials SET disabled = true WHERE access_key = 'k2'`)
  t.match(await read(), { isEqual: false, names: ['acme/k1'] })
})

t.test('a new name, an emptied table and very many changes read all rows', async (t) => {
  const { sql, insert, read } = await readers(t)
  await insert('k1', 'k2')
  await read()
  await sql(`UPDATE storage_auth.credentials SET access_key = 'k3' WHERE access_key = 'k1'`)
  t.match(await read(), { ...asFresh, changed: undefined, names: ['acme/k2', 'acme/k3'] })
  await sql('TRUNCATE storage_auth.credentials')
  t.match(await read(), { ...asFresh, changed: undefined, names: [] })
  await sql(
    `INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)
     SELECT 'many', i, $1 FROM generate_series(1, 20000) i`,
    [sha256],
  )
  t.match(await read(), { ...asFresh, changed: undefined })
})

t.test('a row that became invalid is left out, and is back once it is valid', async (t) => {
  const { sql, insert, read } = await readers(t)
  await insert('k1', 'k2')
  await read()
  const set = (hash: string) =>
    sql(`UPDATE storage_auth.credentials SET secret_hash = $1 WHERE access_key = 'k1'`, [hash])
  await set('$sha256$short')
  t.match(await read(), { ...asFresh, problems: 1, names: ['acme/k2'] })
  await set(sha256)
  t.match(await read(), { ...asFresh, problems: 0, names: ['acme/k1', 'acme/k2'] })
  await set('$sha256$short')
  await read()
  await sql(`DELETE FROM storage_auth.credentials WHERE access_key = 'k1'`)
  t.match(await read(), { ...asFresh, problems: 0, names: ['acme/k2'] })
})

t.test('the database remembers the removals of its last 10,000 revisions', async (t) => {
  const { sql, insert, read } = await readers(t)
  await insert('k1', 'k2')
  await read()
  await sql(`DELETE FROM storage_auth.credentials WHERE access_key = 'k1'`)
  await sql('UPDATE storage_auth.revision SET number = number + 20000')
  await insert('k3')
  t.same(await sql('SELECT FROM storage_auth.removed_credentials'), [])
  t.match(await read(), { ...asFresh, changed: undefined, names: ['acme/k2', 'acme/k3'] })
})
