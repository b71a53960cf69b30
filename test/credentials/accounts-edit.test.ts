import fc from 'fast-check'
import t from 'tap'
import {
  addCredential,
  type Edit,
  removeCredential,
  setDisabled,
} from '../../src/credentials/accounts-edit.ts'
import { parseAccountsText } from '../../src/credentials/accounts-text.ts'
import { nameProblem } from '../../src/names.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

const FILE = `# Our accounts.
accounts:
  # The first customer.
  - accountId: acme # since 2020
    credentials:
      - accessKey: one
        secretHash: ${HASH} # Ana has it
      # For the backup.
      - { accessKey: two, secretHash: "${HASH}", disabled: true }

  - accountId: other
    credentials:
      - accessKey: one
        secretHash: ${HASH}

# The end.
`

async function edited(text: string, edit: Edit): Promise<string> {
  const before = await parseAccountsText(text)
  if (!before.ok) throw new Error(before.problems.join())
  const result = edit(text, before.accounts)
  if (!result.ok) return result.problem
  if (!(await parseAccountsText(result.text)).ok) throw new Error('the edit left it invalid')
  return result.text
}

t.test('a new account goes to the end, and nothing else changes', async (t) => {
  const expiresAt = '2027-01-31T08:00:00Z'
  const edit = addCredential({ accountId: '123', accessKey: 'key: #1', secretHash: HASH, expiresAt })
  t.equal(
    await edited(FILE, edit),
    FILE.replace(
      '\n# The end.',
      `  - accountId: "123"
    credentials:
      - accessKey: "key: #1"
        secretHash: ${HASH}
        expiresAt: ${expiresAt}

# The end.`,
    ),
  )
})

t.test('a new credential of a known account goes to the end of its list', async (t) => {
  const edit = addCredential({ accountId: 'acme', accessKey: 'three', secretHash: HASH })
  const added = `      - accessKey: three\n        secretHash: ${HASH}\n`
  t.equal(await edited(FILE, edit), FILE.replace('disabled: true }\n', `disabled: true }\n${added}`))
})

t.test('the first account of an empty list is written as a block', async (t) => {
  const edit = addCredential({ accountId: 'acme', accessKey: 'one', secretHash: HASH })
  const expected = `accounts:
  - accountId: acme
    credentials:
      - accessKey: one
        secretHash: ${HASH}
`
  t.equal(await edited('accounts: []\n', edit), expected)
  t.equal(await edited('accounts:\n  - accountId: acme\n    credentials: []\n', edit), expected)
})

t.test('a credential that is there already is not added', async (t) => {
  const edit = addCredential({ accountId: 'acme', accessKey: 'two', secretHash: HASH })
  t.equal(await edited(FILE, edit), 'the account already has a credential of that access key')
})

t.test('a credential is disabled and enabled where it stands', async (t) => {
  const one = { accountId: 'acme', accessKey: 'one' }
  const two = { accountId: 'acme', accessKey: 'two' }
  const disabled = await edited(FILE, setDisabled(one, true))
  t.equal(disabled, FILE.replace('# Ana has it\n', '# Ana has it\n        disabled: true\n'))
  t.equal(await edited(disabled, setDisabled(one, false)), FILE)
  t.equal(await edited(FILE, setDisabled(one, false)), FILE, 'one that is enabled stays as it is')
  t.equal(await edited(FILE, setDisabled(two, true)), FILE, 'and so does one that is disabled')
  t.equal(await edited(FILE, setDisabled(two, false)), FILE.replace(', disabled: true', ''))
})

t.test('a credential is removed, and with the last one its account', async (t) => {
  const second = `      # For the backup.\n      - { accessKey: two, secretHash: "${HASH}", disabled: true }\n`
  t.equal(
    await edited(FILE, removeCredential({ accountId: 'acme', accessKey: 'two' })),
    FILE.replace(second, ''),
  )
  const other = await edited(FILE, removeCredential({ accountId: 'other', accessKey: 'one' }))
  t.notMatch(other, /other/)
  t.match(other, /accountId: acme # since 2020/)
  t.match(other, /# The end\./)
  const none = await edited(other, removeCredential({ accountId: 'acme', accessKey: 'one' }))
  t.same(
    await parseAccountsText(await edited(none, removeCredential({ accountId: 'acme', accessKey: 'two' }))),
    {
      ok: true,
      accounts: [],
    },
  )
})

t.test('a credential that is not there cannot be changed', async (t) => {
  for (const name of [
    { accountId: 'acme', accessKey: 'three' },
    { accountId: 'nobody', accessKey: 'one' },
    { accountId: '__proto__', accessKey: 'one' },
  ]) {
    for (const edit of [setDisabled(name, true), setDisabled(name, false), removeCredential(name)]) {
      t.equal(await edited(FILE, edit), 'there is no credential of that account and access key')
    }
  }
})

t.test('whatever the names, an added credential is found again and the others stay', async (t) => {
  const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).filter((text) => !nameProblem(text))
  const property = fc.asyncProperty(name, name, async (accountId, accessKey) => {
    const text = await edited(
      FILE,
      addCredential({ accountId: `${accountId}!`, accessKey, secretHash: HASH }),
    )
    const parsed = await parseAccountsText(text)
    return (
      parsed.ok &&
      parsed.accounts.length === 3 &&
      parsed.accounts[2]?.accountId === `${accountId}!` &&
      parsed.accounts[2].credentials[0]?.accessKey === accessKey &&
      (await edited(text, removeCredential({ accountId: `${accountId}!`, accessKey }))) === FILE
    )
  })
  await t.resolves(fc.assert(property, { numRuns: 200 }))
})
