import t, { type Test } from 'tap'
import { ATOMIC } from '../../src/reload/change-detector.ts'
import type { Loaded } from '../../src/reload/files.ts'
import { createReloadable } from '../../src/reload/reloadable.ts'
import { eventually } from '../support/eventually.ts'

/** An atomic source without a version yet, and the events of its reloadable. */
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
      return shown
    },
    load: async (): Promise<Loaded<string>> => source.shown,
    show: (value: string) => (source.shown = { ok: true, value, warnings: [] }),
    fail: (problem: string) => (source.shown = { ok: false, problems: [problem] }),
  }
  const reloadable = createReloadable({
    source,
    initial: 'none',
    limits: ATOMIC,
    pollMs,
    retryMs: 5,
    onActive: (value) => events.push(`active ${value}`),
    onFailed: (problems) => events.push(`failed ${problems.join()}`),
    onRecovered: () => events.push('recovered'),
    onPolled: (isCurrent) => events.push(isCurrent ? 'current' : 'stale'),
    onFault: (error) => events.push(String(error)),
  })
  t.teardown(reloadable.stop)
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
    ['failed down', 'active v1', 'current'],
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
  t.same(events, ['active v1', 'current', 'failed down', 'stale', 'stale', 'recovered', 'current'])
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
