import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { isReplaced, oldestChange, versionOf } from '../../src/files/files-version.ts'

t.test('every change of a file or of what is in a directory makes another version', async (t) => {
  const root = t.testdir({ file: 'a', directory: { one: '1', two: '2' } })
  const paths = [join(root, 'file'), join(root, 'directory')]
  const changes: Readonly<Record<string, () => void>> = {
    rewritten: () => writeFileSync(join(root, 'file'), 'ab'),
    'rewritten with as many bytes and an old time': () => {
      writeFileSync(join(root, 'file'), 'cd')
      utimesSync(join(root, 'file'), 1, 1)
    },
    renamed: () => renameSync(join(root, 'file'), join(root, 'away')),
    'renamed back': () => renameSync(join(root, 'away'), join(root, 'file')),
    'rewritten inside': () => writeFileSync(join(root, 'directory', 'one'), '11'),
    added: () => writeFileSync(join(root, 'directory', 'three'), ''),
    'exchanged names': () => {
      renameSync(join(root, 'directory', 'one'), join(root, 'directory', '.x'))
      renameSync(join(root, 'directory', 'two'), join(root, 'directory', 'one'))
      renameSync(join(root, 'directory', '.x'), join(root, 'directory', 'two'))
    },
    removed: () => rmSync(join(root, 'directory', 'three')),
    'a link to nothing': () => symlinkSync('nowhere', join(root, 'directory', 'link')),
    'what a link leads to': () => writeFileSync(join(root, 'directory', 'nowhere'), ''),
    'removed with all in it': () => rmSync(join(root, 'directory'), { recursive: true }),
    'a file in its place': () => writeFileSync(join(root, 'directory'), ''),
  }
  const seen = new Set([(await versionOf(paths)).id])
  for (const [name, change] of Object.entries(changes)) {
    change()
    const { id } = await versionOf(paths)
    t.notOk(seen.has(id), name)
    t.equal((await versionOf(paths)).id, id, 'another look changes nothing')
    seen.add(id)
  }
})

t.test('dot files and half-written replacements are no part of a version', async (t) => {
  const root = t.testdir({ directory: { one: '1' } })
  const { id } = await versionOf([join(root, 'directory')])
  writeFileSync(join(root, 'directory', '.lock'), '')
  writeFileSync(join(root, 'directory', 'one.0a6b.tmp'), '')
  writeFileSync(join(root, 'neighbour'), '')
  t.equal((await versionOf([join(root, 'directory')])).id, id)
})

t.test('it names the directories in which changes show, and tells a new one from the old', async (t) => {
  const root = t.testdir({ files: { file: '' } })
  const [files, file] = [join(root, 'files'), join(root, 'files', 'file')]
  const { directories } = await versionOf([file])
  t.same([...directories.keys()], [files])
  t.same([...(await versionOf([files])).directories.keys()].sort(), [root, files])
  rmSync(files, { recursive: true })
  t.equal((await versionOf([file])).directories.size, 0)
  mkdirSync(files)
  t.not((await versionOf([file])).directories.get(files), directories.get(files))
})

t.test('it tells what is neither file nor directory', async (t) => {
  const root = t.testdir({ file: '' })
  const pipe = join(root, 'pipe')
  execFileSync('mkfifo', [pipe])
  t.same((await versionOf([pipe, join(root, 'file'), root, join(root, 'none')])).unreadable, [pipe])
})

t.test('it tells when the newest change was made, in whatever file and however it was made', async (t) => {
  const root = t.testdir({ directory: { one: '1' } })
  const directory = join(root, 'directory')
  let { changedAt } = await versionOf([directory])
  t.ok(Math.abs(Date.now() - changedAt) < 60_000)
  const changes: (() => void)[] = [
    () => writeFileSync(join(directory, 'one'), '2'),
    () => rmSync(join(directory, 'one')),
  ]
  for (const change of changes) {
    await new Promise((resolve) => setTimeout(resolve, 20)) // the clock of a file system goes in steps
    change()
    const later = await versionOf([directory])
    t.ok(later.changedAt > changedAt)
    changedAt = later.changedAt
  }
  t.equal((await versionOf(['/no/such/directory/file'])).changedAt, 0)
})

t.test('what was put into place whole is told from what may be half-written', async (t) => {
  const root = t.testdir({ directory: { one: '1', two: '2' } })
  const directory = join(root, 'directory')
  const changes: [string, boolean, () => void][] = [
    ['nothing', true, () => {}],
    ['a file that nobody reads', true, () => writeFileSync(join(directory, 'log'), 'x')],
    ['rewritten in place', false, () => writeFileSync(join(directory, 'one'), '1+')],
    [
      'renamed over',
      true,
      () => {
        writeFileSync(join(root, 'next'), '1')
        renameSync(join(root, 'next'), join(directory, 'one'))
      },
    ],
    ['removed', true, () => rmSync(join(directory, 'one'))],
    ['new', false, () => writeFileSync(join(directory, 'one'), '1')],
    [
      'one of each',
      false,
      () => {
        writeFileSync(join(directory, 'one'), '1+')
        rmSync(join(directory, 'two'))
      },
    ],
  ]
  const isPart = (name: string) => name !== 'log'
  let former = await versionOf([directory], isPart)
  for (const [name, replaced, change] of changes) {
    change()
    const version = await versionOf([directory], isPart)
    t.equal(isReplaced(former, version), replaced, name)
    former = version
  }
})

t.test('the oldest of several changes is the one that counts', async (t) => {
  const at = (changedAt: number, files: Record<string, number>) => ({
    id: '',
    unreadable: [],
    directories: new Map(),
    changedAt,
    files: new Map(
      Object.entries(files).map(([path, time]) => [
        path,
        { id: `${time}`, inode: `${time}`, changedAt: time },
      ]),
    ),
  })
  const former = at(100, { a: 50, b: 90, c: 70 })
  t.equal(oldestChange(former, at(300, { a: 200, b: 300, c: 70 })), 200, 'the first of two')
  t.equal(oldestChange(former, at(300, { a: 50, b: 60, c: 70 })), 300, 'a file from elsewhere that is older')
  t.equal(oldestChange(former, at(300, { a: 50, b: 90 })), 300, 'a file that is gone')
  t.equal(oldestChange(former, at(300, { a: 50, b: 250 })), 250, 'one gone and one changed')
  t.equal(oldestChange(former, at(300, { a: 50, b: 90, c: 70, d: 250 })), 250, 'a new one')
})
