import { appendFile, chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t, { type Test } from 'tap'
import { loadCredentialsFile, parse as parseBytes } from '../../src/credentials/credentials-file.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

/** Writes so many credentials, ten to an account. */
async function manyCredentials(t: Pick<Test, 'teardown'>, count: number): Promise<string> {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const lines = ['accounts:']
  for (let at = 0; at < count; at++) {
    if (at % 10 === 0) lines.push(`  - accountId: account-${at / 10}`, '    credentials:')
    lines.push(`      - accessKey: AK${at}`, `        secretHash: ${HASH}`)
  }
  await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o600 })
  return file
}

const parse = (text: string) => parseBytes(Buffer.from(text))

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
      { ...acme, accessKey: 'one', expiresAtMs: Number.POSITIVE_INFINITY, disabled: false },
      { ...acme, accessKey: '2', expiresAtMs: Date.parse('2027-01-31T08:00:00Z'), disabled: true },
    ],
    warnings: [],
  })
  t.same(parse('accounts: []'), { ok: true, value: [], warnings: [] })
})

t.test('all problems are reported in file order, with line and column', async (t) => {
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
    '6:20: accounts[0].credentials[0].expiresAt must be an RFC 3339 time with its zone, in UTC before the year 10000: 2027-12-31T23:59:59Z',
    '7:19: accounts[0].credentials[0].disabled must be true or false',
    '8:9: accounts[0].credentials[0] has a member that is not known here: colour',
    '9:9: accounts[0].credentials[1].accessKey is missing; must be a string',
    '9:21: accounts[0].credentials[1].secretHash must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it',
    '10:9: accounts[0].credentials[2] must be a map with accessKey and secretHash',
    '11:5: accounts[1].credentials is missing; must be a list',
    '12:16: accounts[2].accountId repeats an account',
    '13:18: accounts[2].credentials must be a list',
    '14:16: accounts[3].accountId must be 1 to 1024 characters long',
    '17:22: accounts[3].credentials[1].accessKey repeats an access key of this account',
    '17:37: accounts[3].credentials[1].secretHash must be a string: quote it (YAML reads it as a number)',
    '17:51: accounts[3].credentials[1].expiresAt must be a string: quote it (YAML reads it as a number)',
    '18:1: has a member that is not known here: more',
  ])
})

t.test('a scope that no request could be judged by is a problem of its item', async (t) => {
  for (const [scope, problem] of [
    ['', 'must be a string'],
    ['""', 'must not be empty'],
    ['[storage.read:/a]', 'must be a string'],
    ['storage.read:/a storage.write:/b', 'has an invalid item 2'],
    ['"storage.read:/a/../b"', 'has an invalid item 1'],
  ]) {
    const text = `accounts:\n  - accountId: a\n    credentials:\n      - { accessKey: k, secretHash: ${HASH}, scope: ${scope} }\n`
    const [found = '', ...more] = problemsOf(text)
    t.match(found, /^4:\d+: accounts\[0\]\.credentials\[0\]\.scope /, String(scope))
    t.ok(found.includes(`scope ${problem}`), found)
    t.same(more, [])
  }
})

t.test('names too long for a token are a problem of the access key', async (t) => {
  const account = (accountId: string, accessKey: string) =>
    `  - accountId: ${accountId}\n    credentials:\n      - accessKey: ${accessKey}\n        secretHash: ${HASH}\n`
  const fits = account('密'.repeat(1024), 'a'.repeat(1000))
  t.match(parse(`accounts:\n${fits}`), { ok: true })
  t.same(parse(`accounts:\n${fits}${account('密'.repeat(1023), '密'.repeat(1024))}`), {
    ok: false,
    problems: [
      '8:20: accounts[1].credentials[0].accessKey must be shorter: account and access key together may have 5120 bytes in UTF-8',
    ],
  })
})

t.test('a document of another shape is a problem', async (t) => {
  const shapes: [string, string][] = [
    ['# nothing\n', '1:1: is empty; without accounts, write `accounts: []`'],
    ['[]', '1:1: must be a map with the one member accounts'],
    ['text', '1:1: must be a map with the one member accounts'],
    ['{}', '1:1: accounts is missing; must be a list'],
    ['accounts:', '1:10: accounts must be a list'],
    ['accounts: {}', '1:11: accounts must be a list'],
    ['accounts: [5]', '1:12: accounts[0] must be a map with accountId and credentials'],
    ['accounts: []\n__proto__: {}', '2:1: has a member that is not known here: __proto__'],
  ]
  for (const [text, problem] of shapes) t.same(problemsOf(text), [problem], text)
})

t.test('of a map of too many unknown names the first are reported', async (t) => {
  const names = Array.from({ length: 5000 }, (_, n) => `x${n}: 1`)
  t.equal(problemsOf(['accounts: []', ...names].join('\n')).length, 100)
})

t.test('a secret in the wrong place is not echoed', async (t) => {
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

t.test('a world-readable file gets a warning', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await chmod(file, 0o640)
  t.match(await loadCredentialsFile(file), { ok: true, warnings: [] })
  await chmod(file, 0o644)
  t.match(await loadCredentialsFile(file), {
    warnings: [`${file} can be read by every user of this machine`],
  })
})

t.test('5,000 credentials are loaded while the event loop keeps turning', async (t) => {
  const file = await manyCredentials(t, 5000)
  const stalls: number[] = []
  // The shortest counts: on a busy machine any load can be interrupted for a while.
  for (let load = 0; load < 5; load++) {
    const delay = monitorEventLoopDelay({ resolution: 1 })
    delay.enable()
    const loaded = await loadCredentialsFile(file)
    delay.disable()
    stalls.push(delay.max / 1e6)
    if (!loaded.ok) throw new Error(loaded.problems.join())
    t.equal(loaded.value.size, 5000)
    t.ok(loaded.value.find({ accountId: 'account-499', accessKey: 'AK4999' }))
  }
  t.comment(`longest stall of each load: ${stalls.map((ms) => ms.toFixed(1)).join(', ')} ms`)
  t.ok(Math.min(...stalls) < 50)
})

t.test('problems of a small and of a large file begin with the path and the place', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await appendFile(file, 'more: 1\n')
  const problems = [`${file}:6:1: has a member that is not known here: more`]
  t.same(await loadCredentialsFile(file), { ok: false, problems })
  const large = await manyCredentials(t, 1000)
  await appendFile(large, 'more: 1\n')
  t.same(await loadCredentialsFile(large), {
    ok: false,
    problems: [`${large}:2202:1: has a member that is not known here: more`],
  })
})
