import t from 'tap'
import { parseTime } from '../../src/credentials/names.ts'
import { CredentialIndex, isActive } from '../../src/credentials/store.ts'

const credential = {
  accountId: 'acme',
  accessKey: 'AK1',
  secretHash: '$sha256$x',
  expiresAt: Number.POSITIVE_INFINITY,
  disabled: false,
}

t.test('a credential is found by account and access key', async (t) => {
  const other = { ...credential, accountId: '__proto__', accessKey: 'constructor' }
  const index = new CredentialIndex([credential, other])
  t.equal(index.size, 2)
  t.equal(index.find(credential), credential)
  t.equal(index.find(other), other)
  t.same(
    [index.hasAccount('acme'), index.hasAccount('__proto__'), index.hasAccount('toString')],
    [true, true, false],
  )
  for (const [accountId = '', accessKey = ''] of [
    ['acme', 'constructor'],
    ['acm', 'eAK1'],
    ['acme\u0001AK1', ''],
    ['toString', 'x'],
  ]) {
    t.equal(index.find({ accountId, accessKey }), undefined, accountId)
  }
})

t.test('a credential is active until it expires or is disabled', async (t) => {
  t.ok(isActive(credential, 1e15))
  t.notOk(isActive({ ...credential, disabled: true }, 0))
  t.ok(isActive({ ...credential, expiresAt: 1000 }, 999))
  t.notOk(isActive({ ...credential, expiresAt: 1000 }, 1000))
})

t.test('a time is RFC 3339 with its zone', async (t) => {
  t.equal(parseTime('2027-01-31T08:00:00.5+02:00'), Date.parse('2027-01-31T06:00:00.5Z'))
  t.equal(parseTime('2027-01-31t08:00:00z'), Date.parse('2027-01-31T08:00:00Z'))
  for (const text of [
    ...['2016-12-31T23:59:60Z', '2027-01-31 08:00:00Z'],
    ...['', '2027-01-31', '2027-01-31T08:00:00', '2027-02-30T08:00:00Z', '9999-12-31T23:59:59-12:00'],
    '31 Jan 2027 08:00 UTC',
  ]) {
    t.equal(parseTime(text), undefined, text)
  }
})
