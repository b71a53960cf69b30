import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { chmod, chown, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { mock } from 'node:test'
import t from 'tap'
import { readRegularFile, replaceFile, withLock } from '../../src/files/files.ts'
import { runProgram } from '../support/program.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** The text of a file, or the problem without the path and whether the file is missing. */
async function outcome(path: string, maxBytes = 1000) {
  const read = await readRegularFile(path, maxBytes)
  return read.ok
    ? read.value.bytes.toString()
    : [read.problems.join().replace(`${path}: `, ''), read.kind === 'missing']
}

t.test('a file is read completely, through links too, with its time', async (t) => {
  const directory = t.testdir({ file: 'abc', empty: '' })
  const path = (name: string) => join(directory, name)
  symlinkSync('file', path('link'))
  chmodSync(path('file'), 0o640)
  utimesSync(path('file'), 5, 7.25)
  t.match(await readRegularFile(path('link'), 3), { ok: true, value: { modifiedAtMs: 7250 }, warnings: [] })
  t.equal(await outcome(path('link'), 3), 'abc')
  t.equal(await outcome(path('empty'), 0), '')
})

t.test('anything but a regular file within the size limit is refused at once', async (t) => {
  const directory = t.testdir({ file: 'abcd' })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  t.same(await outcome(path('file'), 3), ['is larger than 3 bytes', false])
  t.same(await outcome(path('directory')), ['is not a file', false])
  t.same(await outcome(path('pipe')), ['is not a file', false])
  t.same(await outcome('/dev/zero'), ['is not a file', false])
  symlinkSync('loop', path('loop'))
  const loop = 'cannot be read: too many symbolic links, or a loop of them'
  t.same(await outcome(path('loop')), [loop, false])
  const missing = 'cannot be read: there is no such file or directory'
  t.same(await outcome(path('none')), [missing, true])
  t.same(await outcome(path('file/below')), ['cannot be read: a part of the path is not a directory', false])
})

t.test('a file whose size is reported as 0, or that grows, is read up to the limit', async (t) => {
  const { length } = readFileSync('/proc/self/limits')
  t.equal((await outcome('/proc/self/limits', length)).length, length)
  const tooLarge = [`is larger than ${length - 1} bytes`, false]
  t.same(await outcome('/proc/self/limits', length - 1), tooLarge)
  const file = join(t.testdir({ file: 'a'.repeat(100_000) }), 'file')
  const reading = readRegularFile(file, 1_000_000)
  appendFileSync(file, 'b'.repeat(200_000))
  const read = await reading
  t.ok(read.ok && [100_000, 300_000].includes(read.value.bytes.length), 'one version or the other')
})

t.test(
  'a file is created with mode 0600, and replaced with its own mode and without leftovers',
  async (t) => {
    const directory = await temporaryDirectory(t)
    const file = join(directory, 'file')
    await replaceFile(file, 'first')
    t.equal((await stat(file)).mode & 0o777, 0o600)
    await chmod(directory, 0o2775)
    await replaceFile(join(directory, 'shared'), 'first')
    t.equal((await stat(join(directory, 'shared'))).mode & 0o777, 0o640, 'setgid: for its group')
    await rm(join(directory, 'shared'))
    await chmod(file, 0o640)
    const before = await stat(file)
    await replaceFile(file, 'second')
    const after = await stat(file)
    t.equal(await readFile(file, 'utf8'), 'second')
    t.equal(after.mode & 0o777, 0o640)
    t.not(after.ino, before.ino, 'a reader of the first version keeps it whole')
    t.same(await readdir(directory), ['file'])
  },
)

const notRoot = process.getuid?.() !== 0 && 'only root may give files away'
t.test(
  'a new file gets the owner of its directory, and a replaced file keeps its own',
  { skip: notRoot },
  async (t) => {
    const directory = await temporaryDirectory(t)
    await chown(directory, 65531, 65531)
    await chmod(directory, 0o750)
    const file = join(directory, 'file')
    await replaceFile(file, 'first')
    t.match(
      await stat(file),
      { uid: 65531, gid: 65531, mode: 0o100640 },
      'the group of such a directory can read',
    )
    await chown(file, 65532, 65532)
    await replaceFile(file, 'second')
    t.match(await stat(file), { uid: 65532, gid: 65532 })
    await chmod(directory, 0o777)
    await writeFile(join(directory, 'public'), 'first')
    await chmod(join(directory, 'public'), 0o664)
    await chown(join(directory, 'public'), 65532, 65532)
    process.seteuid?.(65533)
    t.teardown(() => process.seteuid?.(0))
    await replaceFile(join(directory, 'public'), 'second')
    const { mode } = await stat(join(directory, 'public'))
    t.equal(mode, 0o100644, 'a file for everyone loses no readers, and no other group may write')
    await t.rejects(replaceFile(file, 'third'), /its owner and group cannot be kept/)
    process.seteuid?.(0)
    t.equal(await readFile(file, 'utf8'), 'second', 'readers are not locked out')
  },
)

t.test(
  'a file that is mounted by itself is not replaced, and the reason is in words',
  { skip: spawnSync('unshare', ['-rm', 'true']).status !== 0 && 'needs a mount namespace' },
  async (t) => {
    const file = join(t.testdir({ 'credentials.yaml': 'accounts: []\n' }), 'credentials.yaml')
    const runner = ['unshare', '-rm', 'sh', '-c', 'mount --bind "$0" "$0" && exec "$@"', file]
    const added = await runProgram(t, ['credentials', 'add', '--file', file, '--account', 'acme'], { runner })
    t.match(added, {
      code: 1,
      stderr: `${file}: it is in use, perhaps as a mount point: mount its directory`,
    })
    t.equal(readFileSync(file, 'utf8'), 'accounts: []\n')
  },
)

const locked = { message: /^another command is changing it; if none runs, remove its lock / }
const nothing = async () => {}

t.test('a lock is stale when its command has held it for a minute, and only a file is one', async (t) => {
  const lock = join(t.testdir({ lock: '', directory: {} }), 'lock')
  const age = (path: string, seconds: number) => utimes(path, Date.now() / 1000, Date.now() / 1000 - seconds)
  await age(lock, 50)
  await t.rejects(withLock(lock, nothing, 0), locked)
  await age(lock, 70)
  t.equal(await withLock(lock, async () => 'changed', 0), 'changed')
  const directory = join(dirname(lock), 'directory')
  await age(directory, 70)
  await t.rejects(withLock(directory, nothing, 0), locked)
})

t.test('the lock of a killed command is removed at once, and not that of a living one', async (t) => {
  const directory = t.testdir({})
  const lock = join(directory, 'lock')
  const command = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'])
  t.teardown(() => command.kill('SIGKILL'))
  // As if the other process had taken the lock.
  const own = await withLock(lock, () => readFile(lock, 'utf8'))
  await writeFile(lock, own.replace(String(process.pid), String(command.pid)))
  await t.rejects(withLock(lock, nothing, 1), locked)
  command.kill('SIGKILL')
  await once(command, 'exit')
  t.equal(await withLock(lock, async () => 'changed', 0), 'changed')
  t.same(await readdir(directory), [])
})

t.test('a stale lock is removed once: the next lock is that of a faster command', async (t) => {
  const lock = join(t.testdir({}), 'lock')
  await writeFile(lock, await withLock(lock, () => readFile(lock, 'utf8')))
  // As if another command had replaced the lock while this one asks whether its process is alive.
  const { mock: killed } = mock.method(process, 'kill', () => {
    writeFileSync(lock, 'another')
    throw Object.assign(new Error(), { code: 'ESRCH' })
  })
  t.teardown(() => killed.restore())
  await t.rejects(withLock(lock, nothing, 0), locked)
  t.equal(await readFile(lock, 'utf8'), 'another')
  t.same(await readdir(dirname(lock)), ['lock'])
})

t.test('a command says that it lost its lock, and leaves the lock of the other', async (t) => {
  const lock = join(t.testdir({}), 'lock')
  const change = withLock(lock, () => writeFile(lock, 'another'))
  await t.rejects(change, { message: /^the lock was lost/ })
  t.equal(await readFile(lock, 'utf8'), 'another')
})

t.test('a change that fails rejects with its own error, also where its lock was lost', async (t) => {
  const lock = join(t.testdir({}), 'lock')
  const change = async () => {
    await writeFile(lock, 'another')
    throw new Error('the disk is full')
  }
  await t.rejects(withLock(lock, change), { message: 'the disk is full' })
  t.equal(await readFile(lock, 'utf8'), 'another')
})
