import { execFileSync } from 'node:child_process'
import { appendFileSync, chmodSync, mkdirSync, readFileSync, symlinkSync, utimesSync } from 'node:fs'
import { chmod, chown, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { readRegularFile, readRegularFileSync, replaceFile } from '../../src/reload/files.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** The outcome of both ways of reading: the text, or the problem, whether the file is missing, and the code. */
async function both(path: string, maxBytes = 1000) {
  const read = await readRegularFile(path, maxBytes)
  try {
    const bytes = readRegularFileSync(path, maxBytes)
    return read.ok && read.bytes.equals(bytes) ? bytes.toString() : 'they differ'
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : error
    return read.ok
      ? 'they differ'
      : [...read.problems.map((problem) => problem.slice(path.length + 2)), read.missing, code]
  }
}

t.test('a file is read completely, through links too, with its time', async (t) => {
  const directory = t.testdir({ file: 'abc', empty: '' })
  const path = (name: string) => join(directory, name)
  symlinkSync('file', path('link'))
  chmodSync(path('file'), 0o640)
  utimesSync(path('file'), 5, 7.25)
  t.match(await readRegularFile(path('link'), 3), { ok: true, exposure: [], modifiedAt: 7250 })
  t.strictSame([await both(path('link'), 3), await both(path('empty'), 0)], ['abc', ''])
})

t.test('anything but a regular file within the size limit is refused at once', async (t) => {
  const directory = t.testdir({ file: 'abcd' })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  t.same(await both(path('file'), 3), ['is larger than 3 bytes', false, 'EFBIG'])
  t.same(await both(path('directory')), ['is not a file', false, 'EISDIR'])
  t.same(await both(path('pipe')), ['is not a file', false, 'ENOTREGULAR'])
  t.same(await both('/dev/zero'), ['is not a file', false, 'ENOTREGULAR'])
  symlinkSync('loop', path('loop'))
  const loop = 'cannot be read: too many symbolic links, or a loop of them'
  t.same(await both(path('loop')), [loop, false, 'ELOOP'])
  const missing = 'cannot be read: there is no such file or directory'
  t.same(await both(path('none')), [missing, true, 'ENOENT'])
  t.same(await both(path('file/below')), [
    'cannot be read: a part of the path is not a directory',
    false,
    'ENOTDIR',
  ])
})

t.test('a file whose size is reported as 0, or that grows, is read up to the limit', async (t) => {
  const { length } = readFileSync('/proc/self/limits')
  t.equal((await both('/proc/self/limits', length)).length, length)
  const tooLarge = [`is larger than ${length - 1} bytes`, false, 'EFBIG']
  t.same(await both('/proc/self/limits', length - 1), tooLarge)
  const file = join(t.testdir({ file: 'a'.repeat(100_000) }), 'file')
  const reading = readRegularFile(file, 1_000_000)
  appendFileSync(file, 'b'.repeat(200_000))
  const read = await reading
  t.ok(read.ok && [100_000, 300_000].includes(read.bytes.length), 'one version or the other')
})

t.test('a file is created and replaced with mode 0600 and without leftovers', async (t) => {
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

const notRoot = process.getuid?.() !== 0 && 'only root may give files away'
t.test('a replaced file keeps its owner', { skip: notRoot }, async (t) => {
  const file = join(await temporaryDirectory(t), 'file')
  await writeFile(file, 'first')
  await chown(file, 65532, 65532)
  await replaceFile(file, 'second')
  t.match(await stat(file), { uid: 65532, gid: 65532 })
})

t.test('a failed replacement changes nothing and leaves no file', async (t) => {
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'file')
  await mkdir(join(file, 'something'), { recursive: true }) // a rename cannot replace a directory
  await t.rejects(replaceFile(file, 'second'), { code: 'EISDIR' })
  t.same(await readdir(directory), ['file'])
  await t.rejects(replaceFile(join(directory, 'missing', 'file'), 'text'), { code: 'ENOENT' })
})
