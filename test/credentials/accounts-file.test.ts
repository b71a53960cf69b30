import { execFileSync } from 'node:child_process'
import { appendFile, chmod, mkdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { readAccountsFile } from '../../src/credentials/accounts-file.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

t.test('a valid file gives its accounts and its text', async (t) => {
  const { file } = await makeCredentialsFile(t, [{ accountId: 'acme' }, { accountId: 'other' }])
  const read = await readAccountsFile(file)
  t.match(read, { ok: true, accounts: [{ accountId: 'acme' }, { accountId: 'other' }], warnings: [] })
  t.match(read, { text: /^accounts:\n/ })
})

t.test('a file that everybody may read is worth a warning', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await chmod(file, 0o640)
  t.match(await readAccountsFile(file), { ok: true, warnings: [] })
  await chmod(file, 0o644)
  t.match(await readAccountsFile(file), {
    ok: true,
    warnings: [`${file} can be read by every user of this machine`],
  })
})

t.test('problems begin with the path and the place', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await appendFile(file, 'more: 1\n')
  t.match(await readAccountsFile(file), {
    ok: false,
    missing: false,
    problems: [`${file}:6:1: has a member that is not known here: more`],
  })
})

t.test('a file that cannot be read is a problem in plain words', async (t) => {
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'credentials.yaml')
  t.same(await readAccountsFile(file), {
    ok: false,
    missing: true,
    problems: [`${file}: cannot be read: there is no such file or directory`],
  })
  await mkdir(file)
  t.same(await readAccountsFile(file), {
    ok: false,
    missing: false,
    problems: [`${file}: is not a file`],
  })
})

t.test('bytes that are not UTF-8 are refused, not repaired', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  await writeFile(file, Buffer.from('accounts: [] # caf\xe9\n', 'latin1'))
  t.same(await readAccountsFile(file), {
    ok: false,
    missing: false,
    problems: [`${file}: is not UTF-8 text`],
  })
})

t.test('a pipe in the place of the file is not waited for', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  execFileSync('mkfifo', [file])
  t.match(await readAccountsFile(file), { ok: false, missing: false, problems: [`${file}: is not a file`] })
})

t.test('a file of a size that no credentials have is not even read', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  await writeFile(file, '')
  await truncate(file, 33_554_433)
  t.match(await readAccountsFile(file), { problems: [`${file}: is larger than 33554432 bytes`] })
})
