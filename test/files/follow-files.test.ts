import { execFileSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { Watch } from '../../src/files/directory-watch.ts'
import { versionOf } from '../../src/files/files-version.ts'
import { type FollowOptions, followFiles } from '../../src/files/follow-files.ts'
import type { Load } from '../../src/reload/loaded.ts'
import { eventually } from '../support/eventually.ts'
import { WAYS_OF_WRITING } from '../support/ways-of-writing.ts'

interface Test {
  testdir(content: Record<string, string>): string
  teardown(cleanUp: () => void): void
}

/** A loader of texts, which are bad when they do not end with a full stop. */
const textIn =
  (file: string): Load<string> =>
  async () => {
    const text = await readFile(file, 'utf8').catch(() => undefined)
    if (text?.endsWith('.') === true) {
      return { ok: true, value: text, warnings: text.includes('odd') ? ['it is odd'] : [] }
    }
    return { ok: false, problems: [text === undefined ? 'is missing' : 'does not end'] }
  }

/** Follows one file that holds `one.`, and takes down everything that is told. */
async function follow(t: Test, options: Partial<FollowOptions<string>> & { directory?: string } = {}) {
  const directory = options.directory ?? join(t.testdir({}), 'files')
  const file = join(directory, 'file')
  if (options.directory === undefined) WAYS_OF_WRITING['rewritten in place'](directory, 'file', 'one.')
  const changes: string[] = []
  const reloads: { result: string; seconds: number | undefined }[] = []
  const lines: { level: string; message: string; fields: Record<string, unknown> }[] = []
  const to = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields: { ...fields } })
  const following = followFiles<string>({
    subject: 'texts',
    paths: [file],
    initial: 'one.',
    version: await versionOf([file]),
    load: textIn(file),
    onChange: (value) => changes.push(value),
    onReload: (result, seconds) => reloads.push({ result, seconds }),
    log: { info: to('info'), warn: to('warn'), error: to('error') } as FollowOptions<string>['log'],
    now: Date.now,
    pollMs: 60,
    settleMs: 30,
    ...options,
  })
  // Following keeps no process alive, this one neither.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => {
    clearInterval(alive)
    following.stop()
  })
  const levels = (level: string) => lines.filter((line) => line.level === level)
  const becomes = (text: string) => eventually(() => following.current() === text, text)
  return { following, directory, file, changes, reloads, lines, levels, becomes }
}

const HOUR = 3_600_000

/** Longer than it takes to look, to find files still, and to load them, a few times over. */
const quiet = () => sleep(300)

const withoutWatch: Watch = () => {
  throw Object.assign(new Error('no space left'), { code: 'ENOSPC' })
}

for (const [way, write] of Object.entries(WAYS_OF_WRITING)) {
  t.test(`a file ${way} is in force within a second, watched or not`, async (t) => {
    const root = t.testdir({ watched: {}, polled: {} })
    const followWith = async (watch: Watch | undefined) => {
      const directory = join(root, watch === undefined ? 'watched' : 'polled', 'files')
      write(directory, 'file', 'one.')
      // The periods that are in use, since they are what keeps the promise.
      const { becomes, changes, reloads } = await follow(t, {
        directory,
        ...(watch && { watch }),
        ...{ pollMs: 250, settleMs: 150 },
      })
      for (const text of ['two.', 'six.']) {
        write(directory, 'file', text)
        await becomes(text)
      }
      t.same(changes, ['two.', 'six.'])
      t.same(
        reloads.map(({ result }) => result),
        ['ok', 'ok'],
      )
      for (const { seconds } of reloads) t.ok(seconds !== undefined && seconds < 1, `after ${seconds} s`)
    }
    await Promise.all([undefined, withoutWatch].map(followWith))
  })
}

t.test('nothing is loaded while nothing changes', async (t) => {
  const { directory, changes, reloads } = await follow(t)
  writeFileSync(join(directory, '.lock'), '')
  writeFileSync(join(directory, 'neighbour'), '')
  await quiet()
  t.same([changes, reloads], [[], []])
})

t.test('what changed between the first load and the first look is not missed', async (t) => {
  const directory = t.testdir({ file: 'one.' })
  const version = await versionOf([join(directory, 'file')])
  writeFileSync(join(directory, 'file'), 'two.')
  const { becomes } = await follow(t, { directory, version })
  await becomes('two.')
})

t.test('a version that cannot be used is told once, counted once, and changes nothing', async (t) => {
  const bad: Readonly<Record<string, (file: string) => void>> = {
    'half-written': (file) => writeFileSync(file, 'tw'),
    empty: (file) => writeFileSync(file, ''),
    missing: (file) => rmSync(file),
    'without its directory': (file) => rmSync(join(file, '..'), { recursive: true }),
    'a directory': (file) => {
      rmSync(file)
      mkdirSync(file)
    },
  }
  for (const [name, breakIt] of Object.entries(bad)) {
    const { following, file, directory, changes, reloads, levels, becomes } = await follow(t)
    breakIt(file)
    await eventually(() => reloads.length > 0, 'a reload')
    await quiet()
    t.same(reloads, [{ result: 'failed', seconds: undefined }], name)
    t.match(levels('error'), [{ fields: { subject: 'texts', problems: [String] } }], name)
    t.equal(levels('error').length, 1)
    t.same([following.current(), changes], ['one.', []])
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory)
    writeFileSync(file, 'two.')
    await becomes('two.')
    following.stop()
  }
})

t.test('a pipe in the place of the file is turned down and never opened', async (t) => {
  const { file, following, levels, becomes } = await follow(t)
  rmSync(file)
  execFileSync('mkfifo', [file])
  await eventually(() => levels('error').length > 0, 'an error')
  t.same(levels('error')[0]?.fields['problems'], [`${file}: is not a file`])
  t.equal(following.current(), 'one.')
  rmSync(file)
  writeFileSync(file, 'two.')
  await becomes('two.')
})

t.test('of what is being written no part is taken for the whole', async (t) => {
  const { file, changes, reloads, becomes } = await follow(t, { settleMs: 150, patienceMs: HOUR })
  // Each of these is a good version by itself.
  for (let text = 'a.'; text.length < 20; text += 'a.') {
    writeFileSync(file, text)
    await sleep(20)
  }
  writeFileSync(file, 'whole.')
  await becomes('whole.')
  t.same(changes, ['whole.'])
  t.equal(reloads.length, 1)
})

t.test(
  'what comes into place whole is in force without standing still, and so is what was asked for',
  async (t) => {
    const { directory, file, following, becomes, changes } = await follow(t, {
      settleMs: HOUR,
      patienceMs: HOUR,
    })
    const replace = (text: string) => {
      writeFileSync(join(directory, '.next'), text)
      renameSync(join(directory, '.next'), file)
    }
    replace('two.')
    await becomes('two.')
    // However often that is done: each waits for the one before to be in force, and the next one comes at once.
    for (let step = 0; step < 5; step++) {
      replace(`step ${step}.`)
      await becomes(`step ${step}.`)
    }
    writeFileSync(file, 'in place.')
    await sleep(200)
    t.not(following.current(), 'in place.', 'this may be half-written')
    await following.refresh()
    t.equal(following.current(), 'in place.')
    t.equal(changes.length, 7)
  },
)

t.test('of files that never stand still a new version is in force all the same', async (t) => {
  const ways: Record<string, (directory: string, name: string, text: string) => void> = {
    'replaced again and again': WAYS_OF_WRITING['renamed over'],
    'rewritten again and again': WAYS_OF_WRITING['rewritten in place'],
  }
  for (const [name, write] of Object.entries(ways)) {
    const { directory, following, reloads } = await follow(t, { settleMs: 150 })
    let writes = 0
    const writing = setInterval(() => write(directory, 'file', `${++writes}.`), 100)
    await eventually(() => following.current() !== 'one.', name)
    const refreshed = following.refresh()
    await refreshed
    clearInterval(writing)
    t.ok(
      reloads.every(({ result }) => result === 'ok'),
      name,
    )
    following.stop()
  }
})

t.test(
  'what is bad when it is asked for may be half-written: it is told of once it stands still',
  async (t) => {
    const { file, following, reloads } = await follow(t, { settleMs: 400, patienceMs: HOUR })
    writeFileSync(file, 'tw')
    const refreshed = following.refresh()
    await sleep(100)
    t.same(reloads, [])
    writeFileSync(file, 'two.')
    await refreshed
    t.equal(following.current(), 'two.')
    t.equal(reloads.length, 1)
  },
)

t.test('files that say nothing do not keep a change out, and are none', async (t) => {
  const directory = t.testdir({ file: 'one.', keys: { k: 'one.', old: '' } })
  const keys = join(directory, 'keys')
  const isPart = (name: string) => name === 'k' || name === 'old'
  const load: Load<string> = async () => ({
    ok: true,
    value: existsSync(join(keys, 'old')) ? 'old' : 'gone',
    warnings: [],
  })
  const { following, reloads, becomes } = await follow(t, {
    directory,
    paths: [keys],
    isPart,
    version: await versionOf([keys], isPart),
    load,
    settleMs: HOUR,
    patienceMs: HOUR,
  })
  const writing = setInterval(() => appendFileSync(join(keys, 'sync.log'), 'x'), 5)
  t.teardown(() => clearInterval(writing))
  await quiet()
  t.same(reloads, [])
  rmSync(join(keys, 'old'))
  await becomes('gone')
  clearInterval(writing)
  following.stop()
})

t.test('the time a change takes counts from the first one that was not in force', async (t) => {
  const { file, reloads, becomes } = await follow(t, { settleMs: 150, patienceMs: HOUR })
  for (const text of ['two.', 'three.', 'four.', 'five.']) {
    writeFileSync(file, text)
    await sleep(60)
  }
  await becomes('five.')
  t.equal(reloads.length, 1)
  t.ok((reloads[0]?.seconds ?? 0) >= 0.3, 'three pauses, and until it stood still')
})

t.test('somebody who never stops writing does not keep a change out for ever', async (t) => {
  const { file, changes } = await follow(t, { settleMs: 500, patienceMs: 100 })
  let text = 'two.'
  const writing = setInterval(() => {
    text += '.'
    writeFileSync(file, text)
  }, 5)
  await eventually(() => changes.length >= 2, 'two changes')
  clearInterval(writing) // before its directory is gone
  t.match(changes[0], /^two\.+$/)
})

t.test('a version that changes while it is read is read again', async (t) => {
  const directory = t.testdir({ file: 'one.' })
  const file = join(directory, 'file')
  let reads = 0
  const load: Load<string> = async () => {
    const loaded = await textIn(file)()
    if (++reads === 1) writeFileSync(file, 'three.')
    return loaded
  }
  const { becomes, changes, following } = await follow(t, { directory, load })
  writeFileSync(file, 'two.')
  const refreshed = following.refresh()
  await becomes('three.')
  await refreshed
  t.same(changes, ['three.'])
})

t.test('a refresh loads what looks unchanged, and is done when that is done', async (t) => {
  const { following, reloads, changes, file, levels } = await follow(t)
  await Promise.all([following.refresh(), following.refresh()])
  t.same(reloads, [{ result: 'ok', seconds: undefined }], 'together they are one')
  t.same(changes, ['one.'])
  writeFileSync(file, 'two.')
  await following.refresh()
  t.equal(following.current(), 'two.')
  writeFileSync(file, 'bad')
  await following.refresh()
  await following.refresh()
  t.equal(levels('error').length, 2, 'who asks is told again')
})

t.test(
  'the time a change takes counts from its coming into place, not from when it was written',
  async (t) => {
    const { directory, file, reloads, becomes } = await follow(t)
    writeFileSync(join(directory, '.next'), 'two.')
    utimesSync(join(directory, '.next'), 1, 1)
    renameSync(join(directory, '.next'), file)
    await becomes('two.')
    t.ok((reloads[0]?.seconds ?? 60) < 60)
  },
)

t.test('a clock behind that of the files gives no time below zero', async (t) => {
  const { file, reloads, becomes } = await follow(t, { now: () => 0 })
  writeFileSync(file, 'two.')
  await becomes('two.')
  t.equal(reloads[0]?.seconds, 0)
})

t.test('warnings are logged, long lists of problems are cut', async (t) => {
  const { file, levels, becomes } = await follow(t)
  writeFileSync(file, 'an odd one.')
  await becomes('an odd one.')
  t.match(levels('warn'), [{ message: 'it is odd', fields: { subject: 'texts' } }])
  const problems = Array.from({ length: 5000 }, (_, line) => `${line}: is wrong`)
  const long = await follow(t, { load: async () => ({ ok: false, problems }) })
  await long.following.refresh()
  const [line] = long.levels('error')
  t.same(line?.fields, { subject: 'texts', problems: problems.slice(0, 20), problemsInAll: 5000 })
})

t.test('a fault of the loader or of who is told costs neither the value nor the following', async (t) => {
  const directory = t.testdir({ file: 'one.' })
  const file = join(directory, 'file')
  let faulty = true
  const { following, reloads, levels, becomes } = await follow(t, {
    directory,
    load: async () => {
      if (faulty) throw new Error('a fault')
      return textIn(file)()
    },
    onChange: (text) => {
      if (text === 'two.') throw new Error('another fault')
    },
  })
  await following.refresh()
  t.match(levels('error'), [
    { message: /fault while files were loaded/ },
    { message: /cannot be used/, fields: { problems: [/a fault of the program/] } },
  ])
  t.same(reloads, [{ result: 'failed', seconds: undefined }])
  faulty = false
  for (const text of ['two.', 'three.']) {
    writeFileSync(file, text)
    await becomes(text)
  }
  await eventually(() => reloads.length > 1, 'another reload')
  t.match(levels('error')[2]?.message, /came into force/)
})

t.test('when changes cannot be watched it is said once', async (t) => {
  const { levels, file, becomes } = await follow(t, { watch: withoutWatch })
  for (const text of ['two.', 'three.']) {
    writeFileSync(file, text)
    await becomes(text)
  }
  t.match(levels('warn'), [{ message: /cannot be watched/, fields: { subject: 'texts' } }])
  t.equal(levels('warn').length, 1)
})

t.test('only what concerns the files makes it look at once', async (t) => {
  let tell: (directory: string, name: string | null) => void = () => {}
  const watchers = new Map<string, (name: string | null) => void>()
  const watch: Watch = (directory, _options, onEvent) => {
    watchers.set(directory, (name) => onEvent('change', name))
    return { on: () => {}, close: () => {} }
  }
  tell = (directory, name) => watchers.get(directory)?.(name)
  const { file, directory, following, becomes } = await follow(t, { watch, pollMs: 3_600_000 })
  await sleep(50)
  const changedAndTold = async (text: string, name: string | null) => {
    writeFileSync(file, text)
    tell(directory, name)
  }
  await changedAndTold('two.', 'neighbour')
  await sleep(150)
  t.equal(following.current(), 'one.', 'nobody looked: a busy machine can only make this pass')
  await changedAndTold('three.', 'file')
  await becomes('three.')
  await changedAndTold('four.', '..data')
  await becomes('four.')
  await changedAndTold('five.', null)
  await becomes('five.')

  const keys = join(t.testdir({ keys: { k: '' } }), 'keys')
  const whole = await follow(t, {
    directory,
    paths: [keys],
    version: await versionOf([keys]),
    watch,
    pollMs: 3_600_000,
  })
  await sleep(50)
  writeFileSync(join(keys, 'k'), 'new')
  tell(keys, '.lock')
  tell(keys, 'x.tmp')
  await sleep(150)
  t.equal(whole.reloads.length, 0)
  tell(keys, 'k')
  await eventually(() => whole.reloads.length === 1, 'a reload')
})

t.test('once stopped nothing changes, not even by a load that was under way', async (t) => {
  const directory = t.testdir({ file: 'one.' })
  const file = join(directory, 'file')
  let finish = () => {}
  let loading = false
  const load: Load<string> = () =>
    new Promise((resolve) => {
      loading = true
      finish = () => resolve({ ok: true, value: 'late.', warnings: [] })
    })
  const { following, changes, reloads } = await follow(t, { directory, load })
  const refreshed = following.refresh()
  await eventually(() => loading, 'a load')
  const another = following.refresh()
  following.stop()
  finish()
  await Promise.all([refreshed, another, following.refresh()])
  writeFileSync(file, 'two.')
  await quiet()
  t.same([following.current(), changes, reloads], ['one.', [], []])

  const early = await follow(t, { directory: t.testdir({ file: 'one.' }) })
  early.following.stop()
  await early.following.refresh()
  await quiet()
  t.same(early.reloads, [])
})

t.test('neither looks nor watches keep a process alive', async (t) => {
  const directory = t.testdir({ file: 'one.' })
  const program = `
    import { followFiles } from './src/files/follow-files.ts'
    import { versionOf } from './src/files/files-version.ts'
    const paths = [${JSON.stringify(join(directory, 'file'))}]
    const load = async () => ({ ok: true, value: 2, warnings: [] })
    followFiles({ subject: 's', paths, initial: 1, version: await versionOf(paths), load, log: console, now: Date.now })
  `
  const args = ['--import=ts-blank-space/register', '--input-type=module', '--eval', program]
  execFileSync(process.execPath, args, { timeout: 10_000 })
  t.pass('it ended by itself')
})
