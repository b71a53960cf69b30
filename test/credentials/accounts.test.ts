import t from 'tap'
import { type Credential, createAccounts, isInForce } from '../../src/credentials/accounts.ts'
import { scryptDecoy, sha256Decoy } from '../../src/credentials/secret-hash.ts'

function credential(accessKey: string, more: Partial<Credential> = {}): Credential {
  return {
    accessKey,
    secretHash: sha256Decoy(),
    expiresAt: Number.POSITIVE_INFINITY,
    disabled: false,
    ...more,
  }
}

t.test('a credential is found by its account and access key, and by nothing else', async (t) => {
  const mine = credential('key')
  const accounts = createAccounts([
    { accountId: 'acme', credentials: [mine] },
    { accountId: '__proto__', credentials: [credential('constructor')] },
    { accountId: 'empty', credentials: [] },
  ])
  t.equal(accounts.find('acme', 'key'), mine)
  t.equal(accounts.find('__proto__', 'constructor')?.accessKey, 'constructor')
  for (const [account, key] of [
    ['acme', 'KEY'],
    ['Acme', 'key'],
    ['acme', '__proto__'],
    ['constructor', 'name'],
    ['__proto__', 'toString'],
    ['empty', 'key'],
  ] as const) {
    t.equal(accounts.find(account, key), undefined)
  }
})

t.test('the cost of each scrypt credential is told', async (t) => {
  const cheap = { cost: 2 ** 14, blockSize: 8, parallelization: 5 }
  const dear = { cost: 2 ** 15, blockSize: 8, parallelization: 3 }
  const accounts = createAccounts([
    { accountId: 'a', credentials: [credential('1'), credential('2', { secretHash: scryptDecoy(cheap) })] },
    { accountId: 'b', credentials: [credential('1', { secretHash: scryptDecoy(dear) })] },
  ])
  t.same(accounts.scryptCosts, [cheap, dear])
})

t.test('a credential is in force until the moment it expires, unless it is disabled', async (t) => {
  t.equal(isInForce(credential('k', { expiresAt: 1000 }), 999), true)
  t.equal(isInForce(credential('k', { expiresAt: 1000 }), 1000), false)
  t.equal(isInForce(credential('k', { disabled: true }), 0), false)
})
