import { chmod, chown, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { replaceFile } from '../../src/reload/files.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

t.test('a file is created and replaced with mode 0600, and nothing is left beside it', async (t) => {
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'file')
  await replaceFile(file, 'first')
  t.equal((await stat(file)).mode & 0o777, 0o600)
  await chmod(file, 0o644)
  const before = await stat(file)
  await replaceFile(file, 'second')
  const after = await stat(file)
  t.equal(await readFile(file, 'utf8'), 'second')
  t.equal(after.mode & 0o777, 0o600)
  t.not(after.ino, before.ino, 'a reader of the first version keeps it whole')
  t.same(await readdir(directory), ['file'])
})

t.test(
  'the owner stays',
  { skip: process.getuid?.() !== 0 && 'only root may give files away' },
  async (t) => {
    const file = join(await temporaryDirectory(t), 'file')
    await writeFile(file, 'first')
    await chown(file, 65532, 65532)
    await replaceFile(file, 'second')
    t.match(await stat(file), { uid: 65532, gid: 65532 })
  },
)

t.test('when it fails nothing has changed and nothing is left behind', async (t) => {
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'file')
  await mkdir(join(file, 'something'), { recursive: true }) // a rename cannot replace a directory
  await t.rejects(replaceFile(file, 'second'), { code: 'EISDIR' })
  t.same(await readdir(directory), ['file'])
  await t.rejects(replaceFile(join(directory, 'missing', 'file'), 'text'), { code: 'ENOENT' })
})
