import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { versionOf } from '../../src/ops/files-version.ts'

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
