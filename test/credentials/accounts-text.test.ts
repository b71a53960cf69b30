import fc from 'fast-check'
import t from 'tap'
import { stringify } from 'yaml'
import { createAccountsInSlices } from '../../src/credentials/accounts.ts'
import { parseAccountsText } from '../../src/credentials/accounts-text.ts'
import { nameProblem } from '../../src/names.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

async function problemsOf(text: string): Promise<readonly string[]> {
  const parsed = await parseAccountsText(text)
  return parsed.ok ? [] : parsed.problems
}

t.test('accounts are read with their credentials', async (t) => {
  const parsed = await parseAccountsText(`
accounts:
  - accountId: acme
    credentials:
      - accessKey: one
        secretHash: ${HASH}
      - { accessKey: "2", secretHash: "${HASH}", expiresAt: 2027-01-31T08:00:00Z, disabled: true }
  - accountId: "123"
    credentials: []
`)
  const secretHash = { scheme: 'sha256', digest: Buffer.alloc(32) }
  t.same(parsed, {
    ok: true,
    accounts: [
      {
        accountId: 'acme',
        credentials: [
          { accessKey: 'one', secretHash, expiresAt: Number.POSITIVE_INFINITY, disabled: false },
          { accessKey: '2', secretHash, expiresAt: Date.parse('2027-01-31T08:00:00Z'), disabled: true },
        ],
      },
      { accountId: '123', credentials: [] },
    ],
  })
  t.same(await parseAccountsText('accounts: []'), { ok: true, accounts: [] })
})

t.test('an empty file is a problem that says how to write no accounts', async (t) => {
  for (const text of ['', '\n\n', '# only a comment\n', '---\n']) {
    t.same(await problemsOf(text), ['1:1: is empty; without accounts, write `accounts: []`'])
  }
})

t.test('every problem is told at once, with its line and column, from top to bottom', async (t) => {
  const text = `accounts:
  - accountId: 123
    credentials:
      - accessKey: true
        secretHash: ${HASH}
        expiresAt: 2027-01-31
        disabled: yes
        colour: red
      - secretHash: not-a-hash
      - just a text
  - accountId: acme
  - accountId: acme
    credentials: none
  - accountId: ""
    credentials:
      - { accessKey: k, secretHash: ${HASH} }
      - { accessKey: k, secretHash: 5, expiresAt: 2027 }
more: 1
`
  t.same(await problemsOf(text), [
    '2:16: accounts[0].accountId must be a string: quote it (YAML reads it as a number)',
    '4:20: accounts[0].credentials[0].accessKey must be a string: quote it (YAML reads it as a boolean)',
    '6:20: accounts[0].credentials[0].expiresAt must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z',
    '7:19: accounts[0].credentials[0].disabled must be true or false',
    '8:9: accounts[0].credentials[0] has a member that is not known here: colour',
    '9:9: accounts[0].credentials[1].accessKey is missing',
    '9:21: accounts[0].credentials[1].secretHash must be a whole $sha256$ or $scrypt$ hash, as `credentials add` writes it',
    '10:9: accounts[0].credentials[2] must be a map with accessKey and secretHash',
    '11:5: accounts[1].credentials is missing',
    '12:16: accounts[2].accountId names an account that stands in the list before',
    '13:18: accounts[2].credentials must be a list',
    '14:16: accounts[3].accountId must be 1 to 1024 characters long',
    '17:22: accounts[3].credentials[1].accessKey names an access key that this account has before',
    '17:37: accounts[3].credentials[1].secretHash must be a string: quote it (YAML reads it as a number)',
    '17:51: accounts[3].credentials[1].expiresAt must be a string: quote it (YAML reads it as a number)',
    '18:1: has a member that is not known here: more',
  ])
})

t.test('names that no token has room for are a problem, told where the access key stands', async (t) => {
  const account = (accountId: string, accessKey: string) =>
    `  - accountId: ${accountId}\n    credentials:\n      - accessKey: ${accessKey}\n        secretHash: ${HASH}\n`
  const fits = account('密'.repeat(1024), 'a'.repeat(1000))
  t.match(await parseAccountsText(`accounts:\n${fits}`), { ok: true })
  t.same(await parseAccountsText(`accounts:\n${fits}${account('密'.repeat(1023), '密'.repeat(1024))}`), {
    ok: false,
    problems: [
      '8:20: accounts[1].credentials[0].accessKey must be shorter: no token has room for it beside its account (5120 bytes for both, in UTF-8)',
    ],
  })
})

t.test('a name that stands twice is a problem of its own', async (t) => {
  const account = `{ accountId: a, credentials: [{ accessKey: k, secretHash: ${HASH} }] }`
  t.same(await problemsOf(`accounts:\n  - ${account}\n  - ${account}\n`), [
    '3:18: accounts[1].accountId names an account that stands in the list before',
  ])
  t.same(await problemsOf(`accounts: [${account}, ${account}]`), [
    `1:${`accounts: [${account}, { accountId: `.length + 1}: accounts[1].accountId names an account that stands in the list before`,
  ])
})

t.test('a document of another shape is a problem', async (t) => {
  const shapes: [string, string][] = [
    ['[]', '1:1: must be a map with the one member accounts'],
    ['text', '1:1: must be a map with the one member accounts'],
    ['{}', '1:1: accounts is missing'],
    ['accounts:', '1:10: accounts must be a list'],
    ['accounts: {}', '1:11: accounts must be a list'],
    ['accounts: [5]', '1:12: accounts[0] must be a map with accountId and credentials'],
    ['accounts: []\n__proto__: {}', '2:1: has a member that is not known here: __proto__'],
  ]
  for (const [text, problem] of shapes) t.same(await problemsOf(text), [problem], text)
})

t.test('what is not plain YAML is a problem in words that quote nothing', async (t) => {
  const texts: [string, string[]][] = [
    ['accounts: []\naccounts: []', ['2:1: is not valid YAML here (duplicate key)']],
    ['accounts: [\n', ['2:1: is not valid YAML here (bad indent)']],
    ['accounts: []\n---\naccounts: []', ['2:1: is not valid YAML here (multiple docs)']],
    ['accounts: !hush-hush []', ['1:11: is not valid YAML here (tag resolve failed)']],
    ['accounts: *hush-hush', ['1:11: must not use YAML aliases']],
    ['accounts: []\n? [a]\n: b', ['2:3: is not valid YAML here (non string key)']],
  ]
  for (const [text, problems] of texts) t.same(await problemsOf(text), problems, text)
})

t.test('a secret in the wrong place is not repeated', async (t) => {
  const texts = [
    'accounts: [{ accountId: a, credentials: [{ accessKey: k, secretHash: "hush hush" }] }]',
    `accounts: [{ accountId: a, credentials: [{ accessKey: k, ? "${HASH}hush" }] }]`,
    'accounts: [{ accountId: a, credentials: [{ accessKey: k, "hush hush": 1 }] }]',
    'accounts: "hush hush"',
    '- hush\nhush: hush: hush',
    'accounts: [{ accountId: a, credentials: [{ accessKey: k, expiresAt: hush }] }]',
  ]
  for (const text of texts) {
    const problems = await problemsOf(text)
    t.not(problems.length, 0)
    t.notMatch(problems.join(), /hush/)
  }
})

t.test('any name that is allowed survives being written and read', async (t) => {
  const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).filter((text) => !nameProblem(text))
  const property = fc.asyncProperty(name, name, async (accountId, accessKey) => {
    const parsed = await parseAccountsText(
      stringify({ accounts: [{ accountId, credentials: [{ accessKey, secretHash: HASH }] }] }),
    )
    return (
      parsed.ok &&
      parsed.accounts[0]?.accountId === accountId &&
      parsed.accounts[0].credentials[0]?.accessKey === accessKey
    )
  })
  await t.resolves(fc.assert(property, { numRuns: 300 }))
})

t.test('accounts are told by their number and place in the file, read plain or not', async (t) => {
  const text = `# note
accounts:
  - accountId: one
    credentials: []

  - { accountId: "two", credentials: [] }
  # note
  - accountId: one
    credentials: []
  - accountId: two
    credentials: []
  - accountId: three
    credentials:
      - accessKey: k
        secretHash: hush
  - accountId: "three"
    credentials: []
`
  const twice = 'names an account that stands in the list before'
  t.same(await problemsOf(text), [
    `8:16: accounts[2].accountId ${twice}`,
    `10:16: accounts[3].accountId ${twice}`,
    '15:21: accounts[4].credentials[0].secretHash must be a whole $sha256$ or $scrypt$ hash, as `credentials add` writes it',
    `16:16: accounts[5].accountId ${twice}`,
  ])
})

/** So many credentials: in as many accounts, or all in one. */
const credentials = (count: number) =>
  Array.from({ length: count }, (_, at) => `- accessKey: K${at}\n  secretHash: ${HASH}\n`)
const inAccounts = (list: readonly string[]) =>
  `accounts:\n${list.map((text, at) => `- accountId: a${at}\n  credentials:\n${text.replace(/^/gm, '  ').trimEnd()}\n`).join('')}`
const inOneAccount = (list: readonly string[]) =>
  `accounts:\n- accountId: a\n  credentials:\n  ${list.join('').trimEnd().replaceAll('\n', '\n  ')}\n`

t.test('however many credentials are read and indexed, others get their turn all the time', async (t) => {
  const list = credentials(20_000)
  const texts = {
    'in accounts': inAccounts(list),
    'in one account': inOneAccount(list),
    'in accounts that YAML has to read': inAccounts(list.slice(0, 1000)).replaceAll(
      'accessKey: ',
      'accessKey:  !!str ',
    ),
    'and a long comment': `${inAccounts(list.slice(0, 100))}${'# note\n'.repeat(100_000)}`,
  }
  for (const [name, text] of Object.entries(texts)) {
    let turns = 0
    let going = true
    const turn = () => {
      turns++
      if (going) setImmediate(turn)
    }
    const began = performance.now()
    setImmediate(turn)
    const parsed = await parseAccountsText(text)
    const count = parsed.ok ? parsed.accounts.flatMap((account) => account.credentials).length : 0
    t.ok([20_000, 1000, 100].includes(count), name)
    if (parsed.ok)
      t.ok((await createAccountsInSlices(parsed.accounts)).has('a'.padEnd(text.includes('a0') ? 2 : 1, '0')))
    going = false
    // The work is cut into slices of 5 ms; on a busy machine they are longer.
    const ms = performance.now() - began
    t.ok(turns >= ms / 50, `${name}: ${turns} turns in ${Math.round(ms)} ms`)
  }
})

t.test('what would have to be read at once is long only so far, and it is said what is wanted', async (t) => {
  const list = credentials(900)
  const plain = 'the plain form that `credentials add` writes'
  const flow = (count: number) =>
    JSON.stringify({
      accounts: [
        {
          accountId: 'a',
          credentials: list.slice(0, count).map((_, at) => ({ accessKey: `${at}`, secretHash: HASH })),
        },
      ],
    })
  t.match(await parseAccountsText(flow(700)), { ok: true })
  t.same(await problemsOf(flow(900)), [
    `1:1: is longer than 65536 characters, and so must be a block list of accounts in ${plain}`,
  ])
  const one = inOneAccount(list)
  t.match(await parseAccountsText(one), { ok: true })
  t.same(await problemsOf(one.replace('accessKey: K500\n', 'accessKey: K500\n    colour: red\n')), [
    `1005:1: accounts[0] is longer than 16384 characters, and so must be in ${plain}, with valid values; here it is not`,
  ])
  t.same(await problemsOf(one.replace('- accountId: a', '- credentials: []')), [
    `3:1: accounts[0] is longer than 16384 characters, and so must be in ${plain}, with valid values; here it is not`,
  ])
})
