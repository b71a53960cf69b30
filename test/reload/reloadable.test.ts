import t, { type Test } from 'tap'
import { type Loaded, notLoaded } from '../../src/base/result.ts'
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
    failingMs: 5,
    onPolled(outcome) {
      if (!outcome.mustReport) {
        events.push(outcome.ok ? 'current' : 'stale')
        return
      }
      events.push(outcome.ok ? `report ${outcome.value}` : `failed ${outcome.problems.join()}`)
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
  source.gate = new Promise((resolve) => {
    open = resolve
  })
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
