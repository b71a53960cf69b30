import fc from 'fast-check'
import t from 'tap'
import { type Credential, createAccounts } from '../../src/credentials/accounts.ts'
import { createCredentialTable } from '../../src/credentials/credential-table.ts'
import { scryptDecoy, sha256Decoy } from '../../src/credentials/secret-hash.ts'

const parameters = { cost: 2 ** 14, blockSize: 8, parallelization: 5 }

function stored(accountId: string, accessKey: string, scheme: 'sha256' | 'scrypt' = 'sha256') {
  const secretHash = scheme === 'sha256' ? sha256Decoy() : scryptDecoy(parameters)
  const credential: Credential = { accessKey, secretHash, expiresAt: 1, disabled: false }
  return { accountId, credential }
}

t.test('rows come, change and go', async (t) => {
  const table = createCredentialTable()
  const { accounts } = table
  const first = stored('acme', 'AK1')
  table.apply([
    { id: '1', stored: first },
    { id: '2', stored: stored('acme', 'AK2') },
    { id: '3', stored: stored('__proto__', 'AK1') },
  ])
  t.equal(accounts.find('acme', 'AK1'), first.credential)
  t.ok(accounts.find('__proto__', 'AK1'))
  t.same([accounts.has('acme'), accounts.has('constructor')], [true, false])
  t.equal(accounts.find('constructor', 'AK1'), undefined)
  t.equal(table.size, 3)

  const renewed = stored('acme', 'AK1')
  table.apply([{ id: '1', stored: renewed }, { id: '3' }, { id: '4' }])
  t.equal(accounts.find('acme', 'AK1'), renewed.credential)
  t.equal(accounts.find('__proto__', 'AK1'), undefined)
  t.equal(table.size, 2)
})

t.test('a row that gets another name is not found by the former one', async (t) => {
  const table = createCredentialTable()
  table.apply([
    { id: '1', stored: stored('acme', 'AK1') },
    { id: '2', stored: stored('acme', 'AK2') },
  ])
  const [one, two] = [stored('acme', 'AK2'), stored('acme', 'AK1')]
  table.apply([
    { id: '1', stored: one },
    { id: '2', stored: two },
  ])
  t.equal(
    table.accounts.find('acme', 'AK2'),
    one.credential,
    'two rows may change their names with each other',
  )
  t.equal(table.accounts.find('acme', 'AK1'), two.credential)
  table.apply([{ id: '1', stored: stored('other', 'AK3') }])
  t.equal(table.accounts.find('acme', 'AK2'), undefined)
})

t.test('what scrypt costs follows the rows', async (t) => {
  const table = createCredentialTable()
  t.same(table.accounts.scryptCosts, [])
  table.apply([
    { id: '1', stored: stored('acme', 'AK1', 'scrypt') },
    { id: '2', stored: stored('acme', 'AK2') },
  ])
  t.same(table.accounts.scryptCosts, [parameters])
  table.apply([{ id: '1' }])
  t.same(table.accounts.scryptCosts, [])
})

t.test('after any changes it holds what an index of the remaining rows would', async (t) => {
  const change = fc.record({
    id: fc.constantFrom('1', '2', '3', '4'),
    name: fc.option(fc.tuple(fc.constantFrom('a', 'b'), fc.constantFrom('x', 'y', 'z'))),
  })
  const property = fc.property(fc.array(fc.uniqueArray(change, { selector: ({ id }) => id })), (steps) => {
    const table = createCredentialTable()
    const rows = new Map<string, ReturnType<typeof stored>>()
    for (const step of steps) {
      const changes = step.map(({ id, name }) => ({
        id,
        stored: name ? stored(name[0], name[1]) : undefined,
      }))
      const after = new Map(rows)
      for (const { id, stored } of changes) stored === undefined ? after.delete(id) : after.set(id, stored)
      const names = [...after.values()].map(
        ({ accountId, credential }) => `${accountId} ${credential.accessKey}`,
      )
      if (new Set(names).size < names.length) continue // the database lets no name stand twice
      table.apply(changes)
      rows.clear()
      for (const [id, row] of after) rows.set(id, row)
    }
    const indexed = createAccounts(
      ['a', 'b'].map((accountId) => ({
        accountId,
        credentials: [...rows.values()]
          .filter((row) => row.accountId === accountId)
          .map((row) => row.credential),
      })),
    )
    return (
      table.size === rows.size &&
      ['a', 'b'].every((account) =>
        ['x', 'y', 'z'].every((key) => table.accounts.find(account, key) === indexed.find(account, key)),
      )
    )
  })
  t.doesNotThrow(() => fc.assert(property))
})
