import fc from 'fast-check'
import t from 'tap'
import { stringify } from 'yaml'
import { parse as parseCredentials } from '../../src/credentials/credentials-file.ts'
import { nameProblem } from '../../src/credentials/names.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

const parse = (text: string) => parseCredentials(Buffer.from(text))

function problemsOf(text: string): readonly string[] {
  const parsed = parse(text)
  return parsed.ok ? [] : parsed.problems
}

t.test('credentials are read with their accounts', async (t) => {
  const parsed = parse(`
accounts:
  - accountId: acme
    credentials:
      - accessKey: one
        secretHash: ${HASH}
      - { accessKey: "2", secretHash: "${HASH}", expiresAt: 2027-01-31T08:00:00Z, disabled: true }
  - accountId: "123"
    credentials: []
`)
  const acme = { accountId: 'acme', secretHash: HASH }
  t.same(parsed, {
    ok: true,
    value: [
      { ...acme, accessKey: 'one', expiresAt: Number.POSITIVE_INFINITY, disabled: false },
      { ...acme, accessKey: '2', expiresAt: Date.parse('2027-01-31T08:00:00Z'), disabled: true },
    ],
    warnings: [],
  })
  t.same(parse('accounts: []'), { ok: true, value: [], warnings: [] })
})

t.test('an empty file is a problem that says how to write no accounts', async (t) => {
  for (const text of ['', '\n\n', '# only a comment\n']) {
    t.same(problemsOf(text), ['1:1: is empty; without accounts, write `accounts: []`'])
  }
})

t.test('every problem is reported at once, with its line and column, from top to bottom', async (t) => {
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
  t.same(problemsOf(text), [
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

t.test('names that no token has room for are a problem of the access key', async (t) => {
  const account = (accountId: string, accessKey: string) =>
    `  - accountId: ${accountId}\n    credentials:\n      - accessKey: ${accessKey}\n        secretHash: ${HASH}\n`
  const fits = account('密'.repeat(1024), 'a'.repeat(1000))
  t.match(parse(`accounts:\n${fits}`), { ok: true })
  t.same(parse(`accounts:\n${fits}${account('密'.repeat(1023), '密'.repeat(1024))}`), {
    ok: false,
    problems: [
      '8:20: accounts[1].credentials[0].accessKey must be shorter: no token has room for it beside its account (5120 bytes for both, in UTF-8)',
    ],
  })
})

t.test('a repeated account is a problem of its own', async (t) => {
  const account = `{ accountId: a, credentials: [{ accessKey: k, secretHash: ${HASH} }] }`
  t.same(problemsOf(`accounts:\n  - ${account}\n  - ${account}\n`), [
    '3:18: accounts[1].accountId names an account that stands in the list before',
  ])
  t.same(problemsOf(`accounts: [${account}, ${account}]`), [
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
  for (const [text, problem] of shapes) t.same(problemsOf(text), [problem], text)
})

t.test('invalid YAML is a problem in words that quote nothing', async (t) => {
  const texts: [string, string][] = [
    ['accounts: []\naccounts: []', '2:1: is not valid YAML: Map keys must be unique'],
    ['accounts: []\n---\naccounts: []', '2:1: is not valid YAML: more than one YAML document'],
    ['accounts: !hush-hush []', '1:11: is not valid YAML: Unresolved tag'],
    ['accounts: *hush-hush', '1:11: is not valid YAML: alias without an anchor before it'],
    ['accounts: []\n? [a]\n: b', '1:1: has a member that is not known here'],
  ]
  for (const [text, problem] of texts) t.same(problemsOf(text), [problem], text)
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
    const problems = problemsOf(text)
    t.not(problems.length, 0)
    t.notMatch(problems.join(), /hush/)
  }
})

t.test('any name that is allowed survives being written and read', async (t) => {
  const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).filter((text) => !nameProblem(text))
  const property = fc.property(name, name, (accountId, accessKey) => {
    const parsed = parse(
      stringify({ accounts: [{ accountId, credentials: [{ accessKey, secretHash: HASH }] }] }),
    )
    return parsed.ok && parsed.value[0]?.accountId === accountId && parsed.value[0].accessKey === accessKey
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 300 }))
})

t.test('bytes that are not UTF-8 are refused, not repaired', async (t) => {
  const latin1 = Buffer.from('accounts: [] # caf\xe9\n', 'latin1')
  t.same(parseCredentials(latin1), { ok: false, problems: ['1:1: is not UTF-8 text'] })
})
