import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { filePolicy, openPolledFiles } from '../../src/reload/polled-files.ts'
import { afterJudgement, nextAction, Reloadable } from '../../src/reload/reloadable.ts'
import { type Loaded, loaded, notLoaded } from '../../src/values/result.ts'
import { eventually } from '../support/eventually.ts'

/** A source without a version yet, and the events of its reloadable. */
function setup(t: Test, pollMs = 3_600_000) {
  const events: string[] = []
  const source = {
    shown: { ok: true, value: 'v1', warnings: [] } as Loaded<string>,
    observations: 0,
    gate: Promise.resolve(),
    async observe() {
      source.observations++
      const { shown } = source
      await source.gate
      return shown.ok ? loaded({ version: shown.value }) : shown
    },
    load: async (): Promise<Loaded<string>> => source.shown,
    show: (value: string) => (source.shown = { ok: true, value, warnings: [] }),
    fail: (problem: string) => (source.shown = { ok: false, problems: [problem] }),
  }
  const reloadable = new Reloadable({
    observe: source.observe,
    load: () => source.load(),
    initial: 'none',
    pollMs,
    retryMs: 5,
    onActivated: (value) => events.push(`report ${value}`),
    onFailed: (problems) => events.push(`failed ${problems.join()}`),
    onPolled: (isCurrent) => events.push(isCurrent ? 'current' : 'stale'),
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
  await eventually(() => source.observations > 3, 'some polls')
  t.equal(reloadable.current(), 'none')
  source.show('v1')
  await eventually(() => reloadable.current() === 'v1', 'the first version')
  await eventually(() => events.at(-1) === 'current', 'the end of the poll')
  t.same(
    events.filter((event) => event !== 'stale'),
    ['failed down', 'active v1', 'report v1', 'current'],
  )
})

t.test('a refresh sees every change before it, and refreshes in the meantime share one poll', async (t) => {
  const { source, reloadable } = setup(t)
  let open = () => {}
  source.gate = new Promise((resolve) => (open = resolve))
  const early = reloadable.refresh()
  await eventually(() => source.observations === 1, 'the first poll')
  source.show('v2')
  const late = Array.from({ length: 100 }, () => reloadable.refresh())
  open()
  t.equal(await early, true)
  t.same(new Set(await Promise.all(late)), new Set([true]))
  t.same([reloadable.current(), source.observations], ['v2', 2])
})

t.test('a source that fails keeps its last good version, and says when it is back', async (t) => {
  const { source, reloadable, events } = setup(t)
  t.equal(await reloadable.refresh(), true)
  source.fail('down')
  t.same([await reloadable.refresh(), await reloadable.refresh()], [false, false])
  source.show('v1')
  t.equal(await reloadable.refresh(), true)
  t.equal(reloadable.current(), 'v1')
  t.same(events, ['active v1', 'report v1', 'current', 'failed down', 'stale', 'stale', 'current'])
})

t.test('after stop nothing is asked and nothing changes', async (t) => {
  const { source, reloadable, events } = setup(t, 1)
  reloadable.start()
  await eventually(() => events.length > 3, 'some polls')
  reloadable.stop()
  const { observations } = source
  source.show('v2')
  t.equal(await reloadable.refresh(), false)
  await reloadable.reload()
  t.same([reloadable.current(), source.observations <= observations + 1], ['v1', true])
})

t.test('subscribers act on a new version of files though its log line cannot be written', async (t) => {
  const file = join(t.testdir({ list: 'a' }), 'list')
  const write = () => {
    throw new Error('no log')
  }
  const opened = await openPolledFiles({
    subject: 'revocations',
    paths: [file],
    load: async () => loaded(undefined),
    onReload() {},
    log: { info: write, warn() {}, error() {} },
  })
  if (!opened.ok) throw new Error('not opened')
  let changes = 0
  opened.value.subscribe(() => changes++)
  writeFileSync(file, 'ab')
  await opened.value.reload()
  t.equal(changes, 1)
})

/**
 * Plays polls from an active version `a`: what each finds, and the outcome. `-`: the source is not available.
 * `!`: forced. `good`, `bad`: what loading gives; `moved`: good, but the source changed meanwhile.
 */
function play(kind: 'file' | 'other', polls: readonly string[]): string {
  let state = afterJudgement('a', true)
  const outcomes = polls.map((poll) => {
    const [, forced, version = '', result = ''] = /^(!?)(\S+)(?: (\w+))?$/.exec(poll) ?? []
    const isForced = forced === '!'
    const observed = version === '-' ? notLoaded([result]) : loaded({ version })
    const [next, action] = nextAction(state, observed, isForced, kind === 'file' ? filePolicy : undefined)
    state = next
    if (action === 'wait' || action === 'report') return action
    if (action === 'try' && (result === 'bad' || result === 'moved')) return 'try:wait'
    state = afterJudgement(version, result !== 'bad')
    return action === 'try' ? 'try:activate' : result === 'bad' ? 'reject' : 'activate'
  })
  // Runs of one outcome are counted.
  const runs: [string, number][] = []
  for (const outcome of outcomes) {
    const last = runs.at(-1)
    if (last?.[0] === outcome) last[1]++
    else runs.push([outcome, 1])
  }
  return runs.map(([outcome, count]) => (count === 1 ? outcome : `${count}x${outcome}`)).join(' ')
}

const times = (count: number, poll: string) => Array<string>(count).fill(poll)
const everyPollAnother = (count: number, result: string) =>
  Array.from({ length: count }, (_, poll) => `v${poll} ${result}`)

const CASES: readonly (readonly [string, 'file' | 'other', readonly string[], string])[] = [
  ['an unchanged version is left alone', 'file', times(9, 'a'), '9xwait'],
  ['a good version becomes active once two polls found it', 'file', times(3, 'b'), 'wait try:activate wait'],
  ['the return of the active version is no change', 'file', ['b', 'a', 'a'], '3xwait'],
  [
    'a bad version is reported at the fifth poll',
    'file',
    times(7, 'b bad'),
    'wait try:wait 2xwait reject 2xwait',
  ],
  [
    'the second file of a pair follows in time',
    'file',
    ['b bad', 'b bad', 'c', 'c'],
    'wait try:wait wait try:activate',
  ],
  [
    'a version that changed while it was read is read again',
    'file',
    ['b moved', 'b moved', 'c', 'c'],
    'wait try:wait wait try:activate',
  ],
  [
    'a version that follows others is tried before it is reported',
    'file',
    ['b', 'c', 'd', ...times(5, 'e bad')],
    '4xwait try:wait 2xwait reject',
  ],
  [
    'a version that changes with each poll is loaded at the fiftieth',
    'file',
    everyPollAnother(51, 'good'),
    '49xwait activate wait',
  ],
  ['and reported if it is bad', 'file', everyPollAnother(51, 'bad'), '49xwait reject wait'],
  [
    'a rejected version is loaded again, silently',
    'file',
    times(56, 'b bad'),
    'wait try:wait 2xwait reject 24xwait try:wait 24xwait try:wait wait',
  ],
  [
    'and becomes active when it can be used',
    'file',
    [...times(29, 'b bad'), ...times(3, 'b')],
    'wait try:wait 2xwait reject 24xwait try:activate 2xwait',
  ],
  ['a forced load reports each time', 'file', ['!a bad', '!a bad', '!a', 'a'], '2xreject activate wait'],
  ['a forced version is decided', 'file', ['!b', 'b', 'b'], 'activate 2xwait'],
  [
    'a version of another source is loaded at once',
    'other',
    ['b', 'b', 'c bad', 'c bad', 'c'],
    'activate wait reject try:wait try:activate',
  ],
  [
    'an unavailable source is reported once for each reason',
    'other',
    ['- down', '- down', '- slow', 'a', 'a'],
    'report wait report 2xwait',
  ],
  ['and may come back with a new version', 'other', ['- down', 'b', 'b'], 'report activate wait'],
  [
    'a rejected version does not recover by being seen',
    'other',
    ['b bad', '- down', 'b bad', 'b'],
    'reject report try:wait try:activate',
  ],
]

t.test('each sequence of polls has its actions', async (t) => {
  for (const [name, kind, polls, expected] of CASES) t.equal(play(kind, polls), expected, name)
})
