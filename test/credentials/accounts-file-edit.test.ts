import { mkdir, readdir, readFile, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { lock } from 'proper-lockfile'
import t from 'tap'
import { addCredential, type Edit } from '../../src/credentials/accounts-edit.ts'
import { readAccountsFile } from '../../src/credentials/accounts-file.ts'
import { editAccountsFile } from '../../src/credentials/accounts-file-edit.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const secretHash = await hashSecret('hush', 'sha256')
const add = (accessKey: string) => addCredential({ accountId: 'acme', accessKey, secretHash })

async function keysIn(file: string): Promise<string[]> {
  const read = await readAccountsFile(file)
  if (!read.ok) throw new Error(read.problems.join())
  return read.accounts.flatMap(({ credentials }) => credentials.map(({ accessKey }) => accessKey))
}

t.test('a file is changed in place, and no lock or other trace stays', async (t) => {
  const { file } = await makeCredentialsFile(t)
  t.same(await editAccountsFile(file, add('new')), { ok: true })
  t.same(await keysIn(file), ['AK0', 'new'])
  t.same(await readdir(dirname(file)), ['credentials.yaml'])
})

t.test('a missing file is created where that is wanted, with mode 0600', async (t) => {
  const file = join(await temporaryDirectory(t), 'new.yaml')
  t.same(await editAccountsFile(file, add('new')), {
    ok: false,
    unusable: true,
    problems: [`${file}: cannot be read: there is no such file or directory`],
  })
  t.same(await editAccountsFile(file, add('new'), { initialText: 'accounts: []\n' }), { ok: true })
  t.same(await keysIn(file), ['new'])
  t.equal((await stat(file)).mode & 0o777, 0o600)
})

t.test('a missing directory is not created', async (t) => {
  const file = join(await temporaryDirectory(t), 'missing', 'new.yaml')
  t.same(await editAccountsFile(file, add('new'), { initialText: 'accounts: []\n' }), {
    ok: false,
    unusable: false,
    problems: [`${file}: there is no such file or directory`],
  })
})

t.test('writers at the same time all get their change in', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const keys = ['a', 'b', 'c', 'd']
  const edits = keys.map((key) => editAccountsFile(file, add(key)))
  t.same(await Promise.all(edits), Array(4).fill({ ok: true }))
  t.same((await keysIn(file)).sort(), ['AK0', ...keys])
})

t.test('a file that another command holds is not touched', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const before = await readFile(file, 'utf8')
  const unlock = await lock(file)
  t.same(await editAccountsFile(file, add('new'), { lockRetries: 1 }), {
    ok: false,
    unusable: false,
    problems: [
      `${file}: another command is changing it (it holds the lock); if that command was killed, try again in 10 seconds`,
    ],
  })
  t.equal(await readFile(file, 'utf8'), before)
  await unlock()
})

t.test('the lock of a command that died is taken over', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await mkdir(`${file}.lock`)
  const longAgo = new Date(Date.now() - 60_000)
  await utimes(`${file}.lock`, longAgo, longAgo)
  t.same(await editAccountsFile(file, add('new'), { lockRetries: 0 }), { ok: true })
})

t.test('a symbolic link stays one, and both names share one lock', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const link = join(dirname(file), 'link.yaml')
  await symlink('credentials.yaml', link)
  const unlock = await lock(file)
  t.match(await editAccountsFile(link, add('new'), { lockRetries: 0 }), { ok: false })
  await unlock()
  t.same(await editAccountsFile(link, add('new')), { ok: true })
  t.same(await keysIn(file), ['AK0', 'new'])
  t.same(
    (await readdir(dirname(file), { withFileTypes: true })).map((entry) => entry.isSymbolicLink()),
    [false, true],
  )
})

t.test('a file that is not valid is told and not changed', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await writeFile(file, 'accounts: 5\n')
  t.same(await editAccountsFile(file, add('new')), {
    ok: false,
    unusable: true,
    problems: [`${file}:1:11: accounts must be a list`],
  })
  t.equal(await readFile(file, 'utf8'), 'accounts: 5\n')
})

t.test('an edit that refuses, spoils the file or breaks changes nothing', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const before = await readFile(file, 'utf8')
  const edits: [Edit, string][] = [
    [() => ({ ok: false, problem: 'no' }), 'no'],
    [() => ({ ok: true, text: 'accounts: 5' }), 'the change would leave it invalid'],
    [
      () => {
        throw Object.assign(new Error('x'), { code: 'ENOSPC' })
      },
      'cannot be written: the disk is full',
    ],
  ]
  for (const [edit, problem] of edits) {
    t.same(await editAccountsFile(file, edit), {
      ok: false,
      unusable: false,
      problems: [`${file}: ${problem}`],
    })
  }
  t.equal(await readFile(file, 'utf8'), before)
  t.same(await readdir(dirname(file)), ['credentials.yaml'])
})

t.test('a lock that was lost to another command stops the change', async (t) => {
  const { file } = await makeCredentialsFile(t)
  const before = await readFile(file, 'utf8')
  const lostLock: typeof lock = async (_file, options) => {
    options?.onCompromised?.(new Error('lost'))
    return () => Promise.reject(new Error('not ours any more'))
  }
  t.same(await editAccountsFile(file, add('new'), { lock: lostLock }), {
    ok: false,
    unusable: false,
    problems: [`${file}: the lock was lost, so nothing was changed`],
  })
  t.equal(await readFile(file, 'utf8'), before)
})
