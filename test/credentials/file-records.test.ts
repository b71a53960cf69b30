import { readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { parse as parseCredentials } from '../../src/credentials/credentials-file.ts'
import { fileRecords } from '../../src/credentials/file-records.ts'
import type { CredentialRecords } from '../../src/credentials/records.ts'
import type { Credential } from '../../src/credentials/store.ts'
import { nameProblem } from '../../src/values/names.ts'
import { DONE, type Done } from '../../src/values/result.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const HASH = `$sha256$${'A'.repeat(43)}`
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
async function edited(text: string, edit: (records: CredentialRecords) => Promise<Done>): Promise<string> {
  await writeFile(path, text)
  const changed = await edit(fileRecords(path).credentials)
  return changed.ok ? readFile(path, 'utf8') : changed.problems.join('\n').slice(path.length + 2)
}

function credentialsIn(text: string): readonly Credential[] {
  const parsed = parseCredentials(Buffer.from(text))
  if (!parsed.ok) throw new Error(parsed.problems.join())
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
  t.match(await fileRecords(file).credentials.remove(NEW), { ok: false, isUnusable: true, problems })
  t.same(await fileRecords(file).credentials.add(NEW), DONE)
  t.same(await keysIn(file), ['new'])
  t.equal((await stat(file)).mode & 0o777, 0o600)
  const nowhere = join(dirname(file), 'missing', 'new.yaml')
  t.same(await fileRecords(nowhere).credentials.add(NEW), {
    ok: false,
    isUnusable: false,
    problems: [`${nowhere}: there is no such file or directory`],
  })
})

t.test('concurrent writers all succeed, and no lock file remains', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const keys = ['a', 'b', 'c', 'd']
  const edits = keys.map((accessKey) => fileRecords(file).credentials.add({ ...NEW, accessKey }))
  t.same(await Promise.all(edits), Array(4).fill(DONE))
  t.same((await keysIn(file)).sort(), ['AK0', ...keys])
  t.same(await readdir(dirname(file)), ['credentials.yaml'])
})

t.test('a file locked by another command is not changed, by none of its names', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const link = join(dirname(file), 'link.yaml')
  await symlink('credentials.yaml', link)
  const before = await readFile(file, 'utf8')
  await writeFile(`${file}.lock`, 'another command')
  const add = (path: string) => fileRecords(path).credentials.add(NEW)
  const problem = (path: string) =>
    `${path}: another command is changing it; if none runs, remove its lock ${file}.lock`
  const refused = (path: string) => ({ ok: false, isUnusable: false, problems: [problem(path)] })
  t.same(await Promise.all([file, link].map(add)), [refused(file), refused(link)])
  t.equal(await readFile(file, 'utf8'), before)
  await rm(`${file}.lock`)
  t.same(await add(link), DONE)
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
  t.same(await fileRecords(file).credentials.add({ ...NEW, secretHash: 'hush' }), {
    ok: false,
    isUnusable: false,
    problems: [`${file}: the change would leave it invalid`],
  })
  t.equal(await readFile(file, 'utf8'), before)
  await writeFile(file, 'accounts: 5\n')
  t.same(await fileRecords(file).credentials.add(NEW), {
    ok: false,
    isUnusable: true,
    problems: [`${file}:1:11: accounts must be a list`],
  })
  t.equal(await readFile(file, 'utf8'), 'accounts: 5\n')
})
