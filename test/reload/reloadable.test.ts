import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../src/ops/log.ts'
import { readRegularFile } from '../../src/reload/files.ts'
import type { Load } from '../../src/reload/loaded.ts'
import { createReloadable, type ReloadableOptions } from '../../src/reload/reloadable.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** A loader of texts that are good when they end with a full stop. */
const textIn =
  (file: string): Load<string> =>
  async () => {
    const read = await readRegularFile(file, 100)
    if (!read.ok) return { ok: false, problems: [read.problem] }
    const text = String(read.bytes)
    if (!text.endsWith('.')) return { ok: false, problems: ['does not end'] }
    return { ok: true, value: text, warnings: text.includes('odd') ? ['it is odd'] : [] }
  }

type Options = Partial<ReloadableOptions<string>>

/** A reloadable text in a file that holds `one.`, polled every few milliseconds. */
async function scene(t: Test, optionsFor: (file: string) => Options = () => ({})) {
  const directory = join(await temporaryDirectory(t), 'files')
  mkdirSync(directory)
  const file = join(directory, 'file')
  writeFileSync(file, 'one.')
  const events: string[] = []
  const lines: Record<string, unknown>[] = []
  const created = await createReloadable<string>({
    subject: 'texts',
    paths: [file],
    load: textIn(file),
    onChange: (value) => events.push(value),
    onReload: (result, seconds) => events.push(`${result}${seconds === undefined ? '' : ' after a change'}`),
    log: createLog('info', { write: (line: string) => void lines.push(JSON.parse(line)) }),
    pollMs: 10,
    ...optionsFor(file),
  })
  if (!created.ok) throw new Error(created.problems.join())
  const reloadable = created.value
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => {
    clearInterval(alive)
    reloadable.stop()
  })
  const errors = () => lines.filter(({ level }) => level === 50)
  const becomes = (text: string) => eventually(() => reloadable.current() === text, text)
  return { directory, file, reloadable, events, lines, errors, becomes }
}

/** Polls the directory of the file and runs a step at the beginning of each poll, just before `stat`. */
const eachPoll = (step: (file: string, poll: number) => void) => (file: string) => {
  let poll = -1
  const includes = () => {
    if (++poll > 0) step(file, poll)
    return true
  }
  return { paths: [join(file, '..')], includes }
}

t.test('of a directory, files are loaded when one that counts changes', async (t) => {
  let polls = 0
  let loads = 0
  const { directory, events } = await scene(t, (file) => ({
    paths: [join(file, '..')],
    includes: (name) => {
      if (name === 'file') polls += 1
      return name === 'file' || name.endsWith('.key')
    },
    load: async () => ({ ok: true, value: `load ${++loads}`, warnings: [] }),
  }))
  for (const name of ['.lock.key', 'b.key.tmp', 'note.txt']) writeFileSync(join(directory, name), '')
  const before = polls
  await eventually(() => polls > before + 5, 'some polls')
  t.strictSame(events, [])
  writeFileSync(join(directory, 'b.key'), '')
  await eventually(() => events.length === 2, 'a new file')
  rmSync(join(directory, 'b.key'))
  await eventually(() => events.length === 4, 'its removal')
  t.equal(loads, 3)
})

t.test('a version that is still being written is not loaded', async (t) => {
  // Each of these is valid by itself.
  const write = eachPoll((file, poll) => poll <= 3 && writeFileSync(file, `${'part. '.repeat(poll)}end.`))
  const { events, becomes } = await scene(t, write)
  await becomes('part. part. part. end.')
  t.equal(events.filter((event) => event.startsWith('part')).length, 1)
})

t.test('files that change all the time are loaded all the same', async (t) => {
  const good = await scene(
    t,
    eachPoll((file, poll) => writeFileSync(file, `${poll}.`)),
  )
  const bad = await scene(
    t,
    eachPoll((file, poll) => writeFileSync(file, 'x'.repeat(poll))),
  )
  await eventually(() => good.events.length >= 4 && bad.events.length > 0, 'two versions and a report')
  t.notOk(good.events.includes('failed'))
  t.equal(bad.events[0], 'failed')
})

t.test('a version that changes while it is read is read again', async (t) => {
  let reads = 0
  const { file, events, becomes } = await scene(t, (file) => ({
    async load() {
      const loaded = await textIn(file)()
      if (++reads === 2) writeFileSync(file, 'three.')
      return loaded
    },
  }))
  writeFileSync(file, 'two.')
  await becomes('three.')
  t.equal(events[0], 'three.')
})

t.test('a bad version is reported once, counted once, and changes nothing', async (t) => {
  const MISTAKES: Readonly<Record<string, (file: string) => void>> = {
    truncated: (file) => writeFileSync(file, 'tw'),
    missing: (file) => rmSync(file),
    'without its directory': (file) => rmSync(join(file, '..'), { recursive: true }),
    'a FIFO': (file) => {
      rmSync(file)
      execFileSync('mkfifo', [file])
    },
  }
  for (const [mistake, make] of Object.entries(MISTAKES)) {
    const { file, directory, reloadable, events, errors, becomes } = await scene(t)
    make(file)
    await eventually(() => events.length > 0, mistake)
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory)
    t.equal(reloadable.current(), 'one.', mistake)
    writeFileSync(file, 'two.')
    await becomes('two.')
    await eventually(() => events.length === 3, 'the good version to be counted')
    t.strictSame(events, ['failed', 'two.', 'ok after a change'], mistake)
    t.match(errors(), [{ subject: 'texts', problems: [String] }])
    t.equal(errors().length, 1)
    reloadable.stop()
  }
})

t.test('files that do not fit together yet are not reported when the other one follows', async (t) => {
  const second = join(await temporaryDirectory(t), 'second')
  writeFileSync(second, 'one.')
  let failedLoads = 0
  const { file, events, becomes } = await scene(t, (file) => ({
    paths: [file, second],
    async load() {
      const [a, b] = [readFileSync(file, 'utf8'), readFileSync(second, 'utf8')]
      if (a === b) return { ok: true, value: a, warnings: [] }
      // The second file follows after the first was found not to fit.
      if (++failedLoads === 1) writeFileSync(second, a)
      return { ok: false, problems: ['they do not fit'] }
    },
  }))
  writeFileSync(file, 'two')
  await becomes('two')
  await eventually(() => events.length === 2, 'the pair to be counted')
  t.strictSame([failedLoads, events], [1, ['two', 'ok after a change']])
})

t.test('a reload loads unchanged files, and reports a bad version at once and again', async (t) => {
  const { reloadable, file, events, errors } = await scene(t, () => ({ pollMs: 3_600_000 }))
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

t.test('warnings are logged, and long lists of problems are cut', async (t) => {
  const { file, lines, becomes } = await scene(t)
  writeFileSync(file, 'an odd one.')
  await becomes('an odd one.')
  t.match(lines, [
    { level: 40, msg: 'it is odd' },
    { level: 30, seconds: Number },
  ])
  const problems = Array.from({ length: 5000 }, (_, line) => `${line}: is wrong`)
  let loads = 0
  const long = await scene(t, () => ({
    load: async () => (++loads === 1 ? { ok: true, value: '', warnings: [] } : { ok: false, problems }),
  }))
  await long.reloadable.reload()
  const [line] = long.errors()
  t.strictSame([line?.['problems'], line?.['problemCount']], [problems.slice(0, 20), 5000])
})

t.test('a fault of the loader or of onChange ends neither the value nor the polling', async (t) => {
  let loads = 0
  const { file, reloadable, events, errors, becomes } = await scene(t, (file) => ({
    load: async () => {
      if (++loads === 2) throw new Error('a fault')
      return textIn(file)()
    },
    onChange: (text) => {
      if (text === 'two.') throw new Error('another fault')
    },
  }))
  await reloadable.reload()
  t.strictSame([reloadable.current(), events], ['one.', ['failed']])
  for (const text of ['two.', 'three.']) {
    writeFileSync(file, text)
    await becomes(text)
  }
  t.match(errors(), [
    { err: { message: 'a fault' } },
    { problems: [/internal error/] },
    { err: { message: 'another fault' } },
  ])
})

t.test('once stopped nothing changes, not even by a load that has begun', async (t) => {
  let finish = () => {}
  let loads = 0
  const { reloadable, events, file } = await scene(t, () => ({
    load: async () => {
      if (++loads > 1) await new Promise<void>((resolve) => (finish = resolve))
      return { ok: true, value: 'text', warnings: [] }
    },
  }))
  const reloaded = reloadable.reload()
  await eventually(() => loads === 2, 'a load')
  reloadable.stop()
  writeFileSync(file, 'two.')
  finish()
  await Promise.all([reloaded, reloadable.reload()])
  t.strictSame([loads, events], [2, []])
})

t.test('polling does not keep a process alive', async (t) => {
  const file = join(await temporaryDirectory(t), 'file')
  const program = `
    import { createReloadable } from './src/reload/reloadable.ts'
    const load = async () => ({ ok: true, value: 1, warnings: [] })
    await createReloadable({ subject: 's', paths: [${JSON.stringify(file)}], load, log: console })
  `
  const args = ['--import=ts-blank-space/register', '--input-type=module', '--eval', program]
  execFileSync(process.execPath, args, { timeout: 10_000 })
  t.pass('it ended by itself')
})
