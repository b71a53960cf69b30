import { Counter, Registry } from 'prom-client'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { config, supervising } from './supervising.ts'

t.test('workers that end again and again are replaced later and later', async (t) => {
  const { create, forks, slept, clock, lines } = supervising()
  const app = await create()
  await app.start()
  for (let death = 0; death < 9; death++) {
    clock.now += 1000
    const expected = forks.length + 1
    forks.at(-1)?.ends(null, 'SIGSEGV')
    await eventually(() => forks.length === expected && forks.at(-1)?.said.length === 2, 'the replacement')
  }
  t.same(slept, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000])
  clock.now += 10_000
  forks.at(-1)?.ends(1, null)
  await eventually(() => slept.length === 10, 'the replacement')
  t.equal(slept.at(-1), 0, 'one that lived long is replaced at once')
  t.equal(lines().filter((line) => line === 'worker ended').length, 10)
})

t.test('a replacement that cannot start is ended, and replaced', async (t) => {
  const { create, forks, lines } = supervising((fork, at) => {
    if (at === 2)
      fork.instead.make = {
        did: 'fail',
        what: 'make',
        error: { name: 'UnusableTrust', message: 'keys: none' },
      }
  })
  const app = await create()
  await app.start()
  forks[0]?.ends(1, null)
  await eventually(() => forks[2]?.killed === 'SIGKILL', 'the end of the replacement')
  t.ok(lines().includes('worker not started'))
  forks[2]?.ends(null, 'SIGKILL')
  await eventually(() => forks[3]?.said.length === 2, 'the next one')
})

t.test('a replacement that is made while all is stopped is stopped with the others', async (t) => {
  const { create, forks, lines } = supervising((fork, at) => {
    if (at === 2) fork.instead.make = 'nothing'
  })
  const app = await create()
  await app.start()
  forks[0]?.ends(1, null)
  await eventually(() => forks[2]?.said.length === 1, 'the replacement')
  const stopped = app.stop()
  forks[2]?.says({ did: 'fail', what: 'make', error: { name: 'Error', message: 'no' } })
  t.same(await stopped, { drained: 2, cut: 0 })
  t.notOk(lines().includes('worker not started'))
})

t.test('told to stop while it waits to replace a worker, it replaces it no more', async (t) => {
  let wake = () => {}
  const { create, forks, slept } = supervising(
    undefined,
    () => new Promise<void>((resolve) => (wake = resolve)),
  )
  const app = await create()
  await app.start()
  forks[0]?.ends(1, null)
  await eventually(() => slept.length === 1, 'the wait')
  const stopped = app.stop()
  wake()
  t.same(await stopped, { drained: 1, cut: 0 })
  t.equal(forks.length, 2)
})

t.test('where any port would do, it stays the same also when nobody has it for a moment', async (t) => {
  const { create, forks } = supervising()
  const app = await create()
  await app.start()
  const asked = config.listen.port
  forks[0]?.ends(1, null)
  await eventually(() => forks[2]?.said.length === 2, 'the replacement')
  t.match(forks[2]?.said[0], { do: 'make', config: { listen: { port: asked } } }, 'shared with the other one')
  for (const fork of forks.slice(1)) fork.ends(1, null)
  await eventually(() => forks[4]?.said.length === 2, 'the replacements')
  t.match(forks[3]?.said[0], { do: 'make', config: { listen: { port: 8082 } } })
})

t.test('a login that ended in one worker is told to the others', async (t) => {
  const { create, forks } = supervising()
  const app = await create()
  await app.start()
  const note = { pair: 'a b', failed: true }
  forks[0]?.says({ did: 'learn', note })
  t.same(forks[1]?.said.at(-1), { do: 'learn', note })
  t.not(forks[0]?.said.at(-1)?.do, 'learn')
})

t.test(
  'a process that could not be made is tried again, later each time, and the log says why',
  async (t) => {
    let failures = 0
    const { create, forks, slept, log } = supervising((fork, at) => {
      if (at < 2 || failures === 4) return
      failures++
      const error = Object.assign(new Error('no process'), { code: 'EAGAIN' })
      if (failures % 2 === 0) throw error // Node does the one or the other, by the error
      queueMicrotask(() => fork.fails(error))
    })
    const app = await create()
    await app.start()
    forks[0]?.ends(1, null)
    await eventually(() => forks.at(-1)?.said.at(-1)?.do === 'listen' && forks.length === 5, 'a replacement')
    t.same(slept, [100, 200, 400, 800, 1600])
    const errors = log.flatMap(({ err }) => (err as { code: string } | undefined) ?? [])
    t.equal(errors.filter(({ code }) => code === 'EAGAIN').length, 4)
  },
)

t.test('what workers that end together had counted is all kept', async (t) => {
  const registry = new Registry()
  new Counter({ name: 'a_total', help: 'a', registers: [registry] }).inc(2)
  const metrics = await registry.getMetricsAsJSON()
  const { create, forks, told } = supervising((fork) => {
    fork.state = { metrics }
  })
  const app = await create()
  await app.start()
  t.match(await told().exposition.metrics(), /^a_total 4$/m)
  for (const fork of forks) {
    fork.state = { metrics: [] }
    fork.instead.tell = 'nothing'
  }
  for (const fork of [...forks]) fork.ends(null, 'SIGKILL')
  await eventually(() => forks.length === 4 && forks.every(({ said }) => said.length >= 2), 'replacements')
  t.match(await told().statusMetrics(), [{ name: 'a_total', values: [{ value: 8 }] }])
})

t.test('a total never falls, not even in the moment when a worker ends', async (t) => {
  const registry = new Registry()
  new Counter({ name: 'a_total', help: 'a', registers: [registry] }).inc(2)
  const metrics = await registry.getMetricsAsJSON()
  const state = { checks: [], keys: [], jwks: {}, metrics, rssBytes: 1 }
  const falls: string[] = []
  for (let ticks = 0; ticks < 40; ticks++) {
    const { create, forks, told } = supervising(undefined, () => new Promise(() => {}))
    await (await create()).start()
    for (const fork of forks) fork.instead.tell = 'nothing'
    const asked = told().exposition.metrics()
    for (const fork of forks) fork.says({ did: 'tell', question: 1, state })
    for (let tick = 0; tick < ticks; tick++) await undefined
    forks[0]?.ends(null, 'SIGKILL')
    const text = await asked
    if (!/^a_total 4$/m.test(text)) falls.push(`after ${ticks} ticks: ${text.match(/^a_total .*/m)?.[0]}`)
  }
  t.same(falls, [])
})
