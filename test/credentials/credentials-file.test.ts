import { appendFile, chmod, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { mock } from 'node:test'
import type { Worker } from 'node:worker_threads'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Loaded, loaded, NotDone } from '../../src/base/result.ts'
import { nameProblem } from '../../src/base/values.ts'
import { type Credential, parseCredentials } from '../../src/credentials/credential-list.ts'
import { type CredentialEditor, fileEditors } from '../../src/credentials/editor.ts'
import { loadCredentialsFile } from '../../src/credentials/list-files.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { longestTurnMs, withoutThreadTimes } from '../support/turns.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

/** Writes so many credentials, ten to an account. */
async function manyCredentials(t: Pick<Test, 'teardown'>, count: number): Promise<string> {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const lines = ['accounts:']
  for (let at = 0; at < count; at++) {
    if (at % 10 === 0) {
      lines.push(`  - accountId: account-${at / 10}`, '    credentials:')
    }
    lines.push(`      - accessKey: AK${at}`, `        secretHash: ${HASH}`)
  }
  await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o600 })
  return file
}

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

t.test('a previous secret without an end, or an end without a previous secret, is a problem', async (t) => {
  const credential = `accounts:\n  - accountId: a\n    credentials:\n      - accessKey: k\n        secretHash: ${HASH}\n`
  for (const line of [`previousSecretHash: ${HASH}`, 'previousSecretExpiresAt: 2027-01-31T08:00:00Z']) {
    const [found = '', ...more] = problemsOf(`${credential}        ${line}\n`)
    t.match(found, /must come with the time at which the previous secret ends$/, line)
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
  for (const [text, problem] of shapes) {
    t.same(problemsOf(text), [problem], text)
  }
})

t.test('of a map of too many unknown names the first are reported, and the others counted', async (t) => {
  const text = ['accounts: []', ...Array.from({ length: 5000 }, (_, n) => `x${n}: 1`)].join('\n')
  t.match(problemsOf(text), { length: 101, 0: /^1:1: has 4900 members that are not known and not listed$/ })
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

const threads: Worker[] = []
// Node 26 also reports the thread that compiles the tests.
process.on(
  'worker',
  (thread) => thread.resourceLimits?.maxOldGenerationSizeMb === 160 && threads.push(thread),
)

/** Loads the file. Returns the number of credentials, or the problems without the path. */
async function load(file: string) {
  const loaded = await loadCredentialsFile(file)
  return loaded.ok ? loaded.value.size : loaded.problems.map((problem) => problem.replace(file, 'file'))
}

t.test('large files are parsed in a thread, several at a time', async (t) => {
  t.equal(await load(await manyCredentials(t, 500)), 500)
  t.equal(threads.length, 0, 'a small one is not')
  const counts = [1000, 1000, 12_000]
  const files = await Promise.all(counts.map((count) => manyCredentials(t, count)))
  t.same(await Promise.all(files.map(load)), counts)
  t.equal(threads.length, 3)
})

const REFUSED =
  'file: cannot be parsed within 30 s and 160 MB of memory; write it as the commands do: a line for each member'

t.test('a file that ends its thread fails alone: by too much memory or too much time', async (t) => {
  const file = await manyCredentials(t, 1000)
  const hostile = join(dirname(file), 'hostile.yaml')
  await writeFile(hostile, `[${'{}'.repeat(4_000_000)}]`)
  t.same(await load(hostile), [REFUSED])
  const { timers } = mock
  timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => timers.reset())
  const endless = load(hostile)
  const ticking = setInterval(() => timers.tick(1000), 10)
  t.same(await endless, [REFUSED])
  clearInterval(ticking)
  timers.reset()
  t.equal(await load(file), 1000)
  // As if the idle thread had ended by itself.
  await Promise.all(threads.map((thread) => thread.terminate()))
  t.equal(await load(file), 1000)
})

const turning = '5,000 credentials are loaded while the event loop keeps turning'
t.test(turning, { skip: withoutThreadTimes }, async (t) => {
  const file = await manyCredentials(t, 5000)
  const loading = loadCredentialsFile(file)
  const longestMs = await longestTurnMs(loading)
  const loaded = await loading
  if (!loaded.ok) {
    throw new Error(loaded.problems.join())
  }
  t.equal(loaded.value.size, 5000)
  t.ok(loaded.value.find({ accountId: 'account-499', accessKey: 'AK4999' }))
  t.ok(longestMs < 100, `${longestMs} ms`) // without a thread: several hundred
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

t.test('an account that a large file repeats is reported where it is repeated', async (t) => {
  const large = await manyCredentials(t, 1000)
  await appendFile(large, '  - accountId: account-3\n    credentials: []\n')
  const problem = `${large}:2202:16: accounts[100].accountId repeats an account`
  t.same(await loadCredentialsFile(large), { ok: false, problems: [problem] })
})

const NEW = { accountId: 'acme', accessKey: 'new', secretHash: HASH }

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

const path = join(await temporaryDirectory(t), 'edited.yaml')

/** The text after an edit, or its problem. */
async function edited(text: string, edit: (records: CredentialEditor) => Promise<Loaded>): Promise<string> {
  await writeFile(path, text)
  const changed = await edit(fileEditors(path).credentials)
  if (changed.ok) {
    return readFile(path, 'utf8')
  }
  return changed.problems.join('\n').slice(path.length + 2)
}

function credentialsIn(text: string): readonly Credential[] {
  const parsed = parseCredentials(Buffer.from(text))
  if (!parsed.ok) {
    throw new Error(parsed.problems.join())
  }
  return parsed.value
}

async function keysIn(file: string): Promise<string[]> {
  return credentialsIn(await readFile(file, 'utf8')).map(({ accessKey }) => accessKey)
}

t.test('a new account goes to the end, and nothing else changes', async (t) => {
  const credential = {
    accountId: '123',
    accessKey: 'key: #1',
    secretHash: HASH,
    expiresAt: '2027-01-31T08:00:00Z',
  }
  const added = `  - accountId: "123"
    credentials:
      - accessKey: "key: #1"
        secretHash: ${HASH}
        expiresAt: 2027-01-31T08:00:00Z
`
  t.equal(
    await edited(FILE, (records) => records.add(credential)),
    FILE.replace('\n# The end.', `${added}\n# The end.`),
  )
})

t.test('a new credential of an existing account goes to the end of its list', async (t) => {
  const added = `      - accessKey: new\n        secretHash: ${HASH}\n`
  const expected = FILE.replace('disabled: true }\n', `disabled: true }\n${added}`)
  t.equal(await edited(FILE, (records) => records.add(NEW)), expected)
})

t.test('the first account of an empty list is written as a block', async (t) => {
  const expected = `accounts:
  - accountId: acme
    credentials:
      - accessKey: new
        secretHash: ${HASH}
`
  for (const text of ['accounts: []\n', 'accounts:\n  - accountId: acme\n    credentials: []\n']) {
    t.equal(await edited(text, (records) => records.add(NEW)), expected)
  }
})

t.test('a credential is disabled and enabled in place', async (t) => {
  const one = { accountId: 'acme', accessKey: 'one' }
  const two = { accountId: 'acme', accessKey: 'two' }
  const set = (text: string, name: typeof one, disabled: boolean) =>
    edited(text, (records) => records.update(name, { disabled }))
  const disabled = await set(FILE, one, true)
  t.equal(disabled, FILE.replace('# Ana has it\n', '# Ana has it\n        disabled: true\n'))
  t.equal(await set(disabled, one, false), FILE)
  t.equal(await set(FILE, one, false), FILE, 'one that is enabled stays as it is')
  t.equal(await set(FILE, two, true), FILE, 'and so does one that is disabled')
  t.equal(await set(FILE, two, false), FILE.replace(', disabled: true', ''))
})

t.test('removing the last credential of an account removes the account', async (t) => {
  const remove = (text: string, accountId: string, accessKey: string) =>
    edited(text, (records) => records.remove({ accountId, accessKey }))
  const second = `      # For the backup.\n      - { accessKey: two, secretHash: "${HASH}", disabled: true }\n`
  t.equal(await remove(FILE, 'acme', 'two'), FILE.replace(second, ''))
  const other = await remove(FILE, 'other', 'one')
  t.notMatch(other, /other/)
  t.match(other, /accountId: acme # since 2020/)
  t.match(other, /# The end\./)
  t.same(credentialsIn(await remove(await remove(other, 'acme', 'one'), 'acme', 'two')), [])
})

t.test('a credential with any valid name is found after it is added, and the others stay', async (t) => {
  const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).filter((text) => !nameProblem(text))
  const property = fc.asyncProperty(name, name, async (account, accessKey) => {
    const accountId = `${account}!`
    const text = await edited(FILE, (records) => records.add({ accountId, accessKey, secretHash: HASH }))
    const added = credentialsIn(text)[3]
    const removed = await edited(text, (records) => records.remove({ accountId, accessKey }))
    return added?.accountId === accountId && added.accessKey === accessKey && removed === FILE
  })
  await t.resolves(fc.assert(property, { numRuns: 15 }))
})

t.test('a missing file is created by add alone, with mode 0600, but not its directory', async (t) => {
  const file = join(await temporaryDirectory(t), 'new.yaml')
  const problems = [`${file}: cannot be read: there is no such file or directory`]
  t.match(await fileEditors(file).credentials.remove(NEW), { ok: false, problems })
  t.same(await fileEditors(file).credentials.add(NEW), loaded(undefined))
  t.same(await keysIn(file), ['new'])
  t.equal((await stat(file)).mode & 0o777, 0o600)
  const nowhere = join(dirname(file), 'missing', 'new.yaml')
  const error = `${nowhere}: there is no such file or directory`
  await t.rejects(fileEditors(nowhere).credentials.add(NEW), new NotDone(error))
})

t.test('concurrent writers all succeed, and no lock file remains', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const keys = ['a', 'b', 'c', 'd']
  const edits = keys.map((accessKey) => fileEditors(file).credentials.add({ ...NEW, accessKey }))
  t.same(await Promise.all(edits), Array(4).fill(loaded(undefined)))
  t.same((await keysIn(file)).sort(), ['AK0', ...keys])
  t.same(await readdir(dirname(file)), ['credentials.yaml'])
})

t.test('a file locked by another command is not changed, by none of its names', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const link = join(dirname(file), 'link.yaml')
  await symlink('credentials.yaml', link)
  const before = await readFile(file, 'utf8')
  await writeFile(`${file}.lock`, 'another command')
  const add = (path: string) => fileEditors(path).credentials.add(NEW)
  const problem = (path: string) =>
    `${path}: another command is changing it; if none runs, remove its lock ${file}.lock`
  for (const path of [file, link]) {
    await t.rejects(add(path), new NotDone(problem(path)))
  }
  t.equal(await readFile(file, 'utf8'), before)
  await rm(`${file}.lock`)
  t.same(await add(link), loaded(undefined))
  t.same(await keysIn(file), ['AK0', 'new'])
  const entries = await readdir(dirname(file), { withFileTypes: true })
  t.same(
    entries.map((entry) => entry.isSymbolicLink()),
    [false, true],
  )
})

t.test('an invalid file is reported and not changed, and no change makes a file invalid', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const before = await readFile(file, 'utf8')
  const changed = fileEditors(file).credentials.add({ ...NEW, secretHash: 'hush' })
  await t.rejects(changed, new NotDone(`${file}: the change would leave it invalid`))
  t.equal(await readFile(file, 'utf8'), before)
  await writeFile(file, 'accounts: 5\n')
  t.same(await fileEditors(file).credentials.add(NEW), {
    ok: false,
    problems: [`${file}:1:11: accounts must be a list`],
  })
  t.equal(await readFile(file, 'utf8'), 'accounts: 5\n')
})
