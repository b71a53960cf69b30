import t from 'tap'
import { type CredentialRow, credentialOf, revocationOf } from '../../../src/credentials/postgres/rows.ts'
import { hashSecret } from '../../../src/credentials/secret-hash.ts'

const row: CredentialRow = {
  id: '7',
  account_id: 'acme',
  access_key: 'AK1',
  secret_hash: await hashSecret('hush', 'sha256'),
  expires_at: null,
  disabled: false,
}

t.test('a row of credentials is what the same entry of a file would be', async (t) => {
  t.match(credentialOf(row), {
    ok: true,
    accountId: 'acme',
    credential: {
      accessKey: 'AK1',
      secretHash: { scheme: 'sha256' },
      expiresAt: Number.POSITIVE_INFINITY,
      disabled: false,
    },
  })
  t.match(credentialOf({ ...row, expires_at: 1_800_000_000_500, disabled: true }), {
    credential: { expiresAt: 1_800_000_000_500, disabled: true },
  })
})

t.test('a row that the tables should not have let in is told by its number alone', async (t) => {
  const rows: [Partial<CredentialRow>, string][] = [
    [{ account_id: 'hush\n' }, 'credentials, row 7: account_id must not hold control characters'],
    [{ access_key: '' }, 'credentials, row 7: access_key must be 1 to 1024 characters long'],
    [
      { account_id: '密'.repeat(1000), access_key: '密'.repeat(1000) },
      'credentials, row 7: access_key must be shorter: no token has room for it beside its account (5120 bytes for both, in UTF-8)',
    ],
    [
      { secret_hash: 'hush' },
      'credentials, row 7: secret_hash must be a whole $sha256$ or $scrypt$ hash, as `credentials add` writes it',
    ],
  ]
  for (const [wrong, problem] of rows) t.same(credentialOf({ ...row, ...wrong }), { ok: false, problem })
})

t.test('a row of revocations names one thing', async (t) => {
  const given = { id: '1', name: 'x', issued_before: null }
  t.same(revocationOf({ ...given, subject: 'jti' }), { jti: 'x' })
  t.same(revocationOf({ ...given, subject: 'accountId' }), { accountId: 'x' })
  t.same(revocationOf({ ...given, subject: 'accessKey', issued_before: 5 }), {
    accessKey: 'x',
    issuedBefore: 5,
  })
})
