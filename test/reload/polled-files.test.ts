import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { fileProblem } from '../../src/config/problem.ts'
import { readRegularFile } from '../../src/reload/files.ts'
import { openPolledFiles, type PolledFilesOptions } from '../../src/reload/polled-files.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const problem = (message: string) => fileProblem('texts.file', message)

/** A loader of texts that are good when they end with a full stop. */
const textIn =
  (file: string): PolledFilesOptions<string>['load'] =>
  async () => {
    const read = await readRegularFile(file, 1000)
    if (!read.ok) return { ok: false, problems: read.problems.map(problem) }
    const text = String(read.bytes)
    if (!text.endsWith('.')) return { ok: false, problems: [problem('does not end')] }
    return { ok: true, value: text, warnings: text.includes('odd') ? ['it is odd'] : [] }
  }

/** A reloadable text in a file that holds `one.`, polled without pause to speak of. */
async function setup(t: Test, options: Partial<PolledFilesOptions<string>> = {}) {
  const directory = join(await temporaryDirectory(t), 'files')
  mkdirSync(directory)
  const file = join(directory, 'file')
  writeFileSync(file, 'one.')
  const events: string[] = []
  const lines: { level: string; message: string; fields: Record<string, unknown> }[] = []
  const to = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields: { ...fields } })
  const created = await openPolledFiles<string>({
    subject: 'texts',
    paths: [file],
    load: textIn(file),
    onChange: (value) => events.push(value),
    onReload: (result) => events.push(result),
    log: { info: to('info'), warn: to('warn'), error: to('error') } as PolledFilesOptions<string>['log'],
    pollMs: 10,
    ...options,
  })
  if (!created.ok) throw new Error(JSON.stringify(created.problems))
  const reloadable = created.value
  reloadable.start()
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => {
    clearInterval(alive)
    reloadable.stop()
  })
  const errors = () => lines.filter(({ level }) => level === 'error')
  const becomes = (text: string) => eventually(() => reloadable.current() === text, text)
  return { directory, file, reloadable, events, lines, errors, becomes }
}

t.test('a directory is reloaded when a relevant file changes', async (t) => {
  const root = await temporaryDirectory(t)
  writeFileSync(join(root, 'a.key'), '')
  let polls = 0
  let loads = 0
  const { events } = await setup(t, {
    paths: [root],
    includes: (name) => {
      if (name === 'a.key') polls += 1
      return name.endsWith('.key')
    },
    load: async () => ({ ok: true, value: `load ${++loads}`, warnings: [] }),
  })
  for (const name of ['.lock.key', 'b.key.tmp', 'note.txt']) writeFileSync(join(root, name), '')
  const before = polls
  await eventually(() => polls > before + 5, 'some polls')
  t.strictSame(events, [])
  writeFileSync(join(root, 'b.key'), '')
  await eventually(() => events.length === 2, 'a new file')
  rmSync(join(root, 'b.key'))
  await eventually(() => events.length === 4, 'its removal')
  t.equal(loads, 3)
})

t.test('reload loads unchanged files and reports an invalid version every time', async (t) => {
  const { reloadable, file, events, errors } = await setup(t, { pollMs: 3_600_000 })
  await reloadable.reload()
  t.strictSame(events, ['one.', 'ok'])
  writeFileSync(file, 'two.')
  await reloadable.reload()
  t.equal(reloadable.current(), 'two.')
  writeFileSync(file, 'bad')
  await reloadable.reload()
  await reloadable.reload()
  t.strictSame(events.slice(4), ['failed', 'failed'])
  t.equal(errors().length, 2)
})

t.test('warnings are logged, and long lists of problems are truncated', async (t) => {
  const { file, lines, becomes } = await setup(t)
  writeFileSync(file, 'an odd one.')
  await becomes('an odd one.')
  t.match(lines, [
    { level: 'warn', message: 'it is odd' },
    { level: 'info', message: 'new version active' },
  ])
  const problems = Array.from({ length: 5000 }, (_, line) => `${line}: is wrong`)
  let loads = 0
  const long = await setup(t, {
    load: async () =>
      ++loads === 1 ? { ok: true, value: '', warnings: [] } : { ok: false, problems: problems.map(problem) },
  })
  await long.reloadable.reload()
  t.strictSame(long.errors()[0]?.fields, {
    subject: 'texts',
    problems: problems.slice(0, 20).map((text) => `texts.file: ${text}`),
    problemCount: 5000,
  })
})

t.test('an exception of the loader or of onChange keeps the value and the polling', async (t) => {
  const file = join(await temporaryDirectory(t), 'file')
  writeFileSync(file, 'one.')
  let loads = 0
  const { reloadable, events, errors, becomes } = await setup(t, {
    paths: [file],
    load: async () => {
      if (++loads === 2) throw new Error('a fault')
      return textIn(file)()
    },
    onChange: (text) => {
      if (text === 'two.') throw new Error('another fault')
    },
  })
  await reloadable.reload()
  t.strictSame([reloadable.current(), events], ['one.', ['failed']])
  for (const text of ['two.', 'three.']) {
    writeFileSync(file, text)
    await becomes(text)
  }
  t.match(errors(), [
    { fields: { err: { message: 'a fault' } } },
    { fields: { problems: [/internal error/] } },
    { fields: { err: { message: 'another fault' } } },
  ])
})
