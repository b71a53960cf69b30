import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Loaded, loaded, notLoaded } from '../../src/base/result.ts'
import * as files from '../../src/reload/polled-files.ts'
import { type Found, Reloadable } from '../../src/reload/reloadable.ts'
import { eventually } from '../support/eventually.ts'

/** A source without a version yet, and the events of its reloadable. */
function setup(t: Test, pollMs = 3_600_000) {
  const events: string[] = []
  const source = {
    shown: { ok: true, value: 'v1', warnings: [] } as Loaded<string>,
    reads: 0,
    gate: Promise.resolve(),
    async poll(): Promise<Loaded<Found<string>>> {
      source.reads++
      const { shown } = source
      await source.gate
      return shown.ok ? { ...shown, value: { version: shown.value, load: () => source.load() } } : shown
    },
    load: async (): Promise<Loaded<string>> => source.shown,
    show: (value: string) => (source.shown = { ok: true, value, warnings: [] }),
    fail: (problem: string) => (source.shown = { ok: false, problems: [problem] }),
  }
  const reloadable = new Reloadable({
    poll: source.poll,
    initial: 'none',
    pollMs,
    retryMs: 5,
    onPolled(outcome) {
      const text = outcome.ok ? `report ${outcome.value}` : `failed ${outcome.problems.join()}`
      events.push(outcome.mustReport ? text : outcome.ok ? 'current' : 'stale')
    },
    onError: (error) => events.push(String(error)),
  })
  reloadable.subscribe((value) => events.push(`active ${value}`))
  t.teardown(() => reloadable.stop())
  return { source, reloadable, events }
}

t.test('a source without a first version is tried again until it has one', async (t) => {
  const { source, reloadable, events } = setup(t)
  source.fail('down')
  reloadable.start()
  await eventually(() => source.reads > 3, 'some polls')
  t.equal(reloadable.current(), 'none')
  source.show('v1')
  await eventually(() => reloadable.current() === 'v1', 'the first version')
  await eventually(() => events.at(-1) === 'report v1', 'the end of the poll')
  t.same(
    events.filter((event) => event !== 'stale'),
    ['failed down', 'active v1', 'report v1'],
  )
})

t.test('a refresh sees every change before it, and refreshes in the meantime share one poll', async (t) => {
  const { source, reloadable } = setup(t)
  let open = () => {}
  source.gate = new Promise((resolve) => (open = resolve))
  const early = reloadable.refresh()
  await eventually(() => source.reads === 1, 'the first poll')
  source.show('v2')
  const late = Array.from({ length: 100 }, () => reloadable.refresh())
  open()
  t.equal(await early, true)
  t.same(new Set(await Promise.all(late)), new Set([true]))
  t.same([reloadable.current(), source.reads], ['v2', 2])
  await Promise.all(Array.from({ length: 100 }, () => reloadable.reload()))
  t.equal(source.reads, 3, 'reloads, too')
})

t.test('a source that fails keeps its last good version; each failure is reported once', async (t) => {
  const { source, reloadable, events } = setup(t)
  const { load } = source
  t.equal(await reloadable.refresh(), true)
  for (const problem of ['down', 'down', 'slow']) {
    source.fail(problem)
    t.equal(await reloadable.refresh(), false)
  }
  source.show('v1')
  t.equal(await reloadable.refresh(), true, 'available again')
  source.load = async () => notLoaded(['bad'])
  for (const version of ['v2', 'v2', 'v1', 'v2']) {
    source.show(version)
    t.equal(await reloadable.refresh(), false)
    t.equal(reloadable.current(), 'v1')
  }
  source.load = load
  t.equal(await reloadable.refresh(), true, 'the rejected version can be loaded')
  const reports = events.filter((event) => event !== 'stale' && !event.startsWith('active')).join()
  const failures = 'failed down,failed slow,current,failed bad,failed bad,failed bad'
  t.equal(reports, `report v1,${failures},report v2`)
})

t.test('a subscriber that throws keeps no other one from a new version', async (t) => {
  const { reloadable, events } = setup(t)
  reloadable.subscribe(() => {
    throw 'no memory'
  })
  reloadable.subscribe((value) => events.push(`emptied for ${value}`))
  t.equal(await reloadable.refresh(), false)
  t.same(events, ['active v1', 'emptied for v1', 'no memory'])
})

t.test('after stop nothing is asked and nothing changes', async (t) => {
  const { source, reloadable, events } = setup(t, 1)
  reloadable.start()
  await eventually(() => events.length > 3, 'some polls')
  reloadable.stop()
  const { reads } = source
  source.show('v2')
  t.equal(await reloadable.refresh(), false)
  await reloadable.reload()
  t.same([reloadable.current(), source.reads <= reads + 1], ['v1', true])
})

const times = (count: number, poll: string) => Array<string>(count).fill(poll)
const others = (count: number, result = '') => Array.from({ length: count }, (_, poll) => `v${poll}${result}`)
const pairs = (count: number, result = '') => others(count, result).flatMap((poll) => [poll, poll])

/** Joins words. Runs of a word are counted. */
const runs = (words: readonly string[]) =>
  words.join(' ').replace(/(\b\w+)( \1\b)+/g, (run, word) => `${run.split(' ').length}x${word}`)

/** The cases of `loadStep`: what each poll finds, what follows. Every load fails. */
const DECISIONS: readonly (readonly [string, readonly string[], string])[] = [
  ['another version', times(9, 'b'), 'wait try 2xwait 5xload'],
  ['one that follows others', [...others(9), ...times(5, 'b')], '10xwait try 2xwait load'],
  ['versions that change with each poll', others(101), '49xwait loadAsIs 49xwait loadAsIs wait'],
  ['with every second one', pairs(25), `${'wait try '.repeat(24)}wait loadAsIs`],
]

t.test('what follows from the polls of files', async (t) => {
  for (const [name, polls, expected] of DECISIONS) {
    let history: files.PollHistory = { version: 'a', polls: 9, unsettledPolls: 0 }
    const decisions = polls.map((version) => {
      history = files.countPoll(history, version)
      const step = files.loadStep(history, false)
      if (step.startsWith('load')) {
        history = { ...history, unsettledPolls: 0 }
      }
      return step
    })
    t.equal(runs(decisions), expected, name)
  }
})

/**
 * Plays polls of a file, from an active version `a`: what each finds, and whether it is loaded and reported.
 * `!`: forced. `bad`: what loading gives; `moved`: good, but the file changes meanwhile.
 */
async function play(t: Test, polls: readonly string[], info = () => {}): Promise<string> {
  const events: string[] = []
  let [version, result] = ['', '']
  const link = join(t.testdir(), 'link')
  function show(poll: string) {
    ;[version = '', result = ''] = poll.split(' ')
    rmSync(link, { force: true })
    writeFileSync(join(t.testdirName, version), '', { flag: 'a' })
    symlinkSync(version, link)
  }
  show('a')
  const opened = await files.openPolledFiles({
    subject: 'list',
    paths: [link],
    async load() {
      events.push('try')
      if (result === 'moved') {
        writeFileSync(link, 'moved')
      }
      return result === 'bad' ? notLoaded([{ path: 'list', message: 'bad' }]) : loaded(version)
    },
    onReload: (reported) => reported === 'failed' && events.push('reject'),
    log: { info, warn() {}, error() {} },
  })
  if (!opened.ok) {
    throw new Error('not opened')
  }
  opened.value.subscribe(() => events.push('activate'))
  const outcomes: string[] = []
  let monotonicMs = 0
  t.capture(performance, 'now', () => monotonicMs)
  for (const poll of polls) {
    monotonicMs += 200
    show(poll.replace('!', ''))
    events.push('wait')
    await (poll.startsWith('!') ? opened.value.reload() : opened.value.refresh())
    outcomes.push(events.at(-1) ?? '')
  }
  return runs(outcomes)
}

const CASES: readonly (readonly [string, readonly string[], string])[] = [
  ['an unchanged version is left alone', times(9, 'a'), '9xwait'],
  ['a good version becomes active once two polls found it', times(3, 'b'), 'wait activate wait'],
  ['the return of the active version is no change', ['b', 'a', 'a'], '3xwait'],
  ['but after a rejection it is', [...times(5, 'b bad'), 'a', 'a'], 'wait try 2xwait reject wait activate'],
  ['the second file of a pair follows in time', ['b bad', 'b bad', 'c', 'c'], 'wait try wait activate'],
  ['a version that changed while it was read', ['b moved', 'b moved', 'b', 'b'], 'wait try wait activate'],
  ['a good version that changes with each poll', others(51), '49xwait activate wait'],
  ['one that also changes while it is read', others(51, ' moved'), '49xwait activate wait'],
  ['and a bad one', others(51, ' bad'), '49xwait reject wait'],
  ['a bad one that changes with every second', pairs(25, ' bad'), `${'wait try '.repeat(24)}wait reject`],
  ['and a good one', ['b', ...pairs(27)], `2xwait activate ${times(26, 'wait activate').join(' ')}`],
  ['a rejected version is tried again', times(31, 'b bad'), 'wait try 2xwait reject 24xwait try wait'],
  ['and activated', [...times(29, 'b bad'), 'b', 'b'], 'wait try 2xwait reject 24xwait activate wait'],
  ['unless it changes meanwhile', [...times(29, 'b bad'), 'b moved'], 'wait try 2xwait reject 24xwait try'],
  ['one that returns after another', ['!b bad', 'c', ...times(5, 'b')], 'reject 2xwait activate 3xwait'],
  ['a forced load reports each time', ['!a bad', '!a bad', '!a', 'a'], '2xreject activate wait'],
  ['a forced version is decided', ['b', '!b moved', 'c', '!c', 'c'], 'wait activate wait activate wait'],
]

t.test('each sequence of polls of a file has its outcomes', async (t) => {
  for (const [name, polls, expected] of CASES) {
    t.equal(await play(t, polls), expected, name)
  }
})

t.test('subscribers act on a new version of files though its log line cannot be written', async (t) => {
  const write = () => {
    throw new Error('no log')
  }
  t.equal(await play(t, ['!b', 'b'], write), 'activate wait')
})
