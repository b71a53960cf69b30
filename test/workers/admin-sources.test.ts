import { Counter, Gauge, Registry } from 'prom-client'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { supervising } from './supervising.ts'

t.test('what is told is that of all workers that serve and answer', async (t) => {
  const registry = new Registry()
  new Counter({ name: 'a_total', help: 'a', registers: [registry] }).inc(2)
  const metrics = await registry.getMetricsAsJSON()
  const { create, forks, told, clock } = supervising((fork, at) => {
    fork.state = {
      metrics,
      checks: [
        { name: 'keys', ok: true },
        { name: 'credentials', ok: at === 0, state: at === 0 ? 'file' : 'stale' },
      ],
    }
  })
  const app = await create()
  t.same(
    await told().ready(),
    [
      { name: 'keys', ok: true },
      { name: 'credentials', ok: true, state: 'file' },
      { name: 'accepting', ok: false },
    ],
    'also before anybody is let in',
  )
  await app.start()
  clock.now += 100
  t.same(await told().ready(), [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: false, state: 'stale' },
    { name: 'accepting', ok: true },
  ])
  t.same(await told().jwks(), { keys: ['k'] })
  t.equal(await told().rssBytes(), 14)
  t.match(await told().exposition.metrics(), /^a_total 4$/m)
  t.match(await told().exposition.metrics(), /^auth_sidecar_workers 2$/m)
  forks[1]?.ends(1, null)
  await eventually(() => forks[2]?.said.length === 2, 'the replacement')
  clock.now += 100
  const families = await told().statusMetrics()
  t.match(
    families.find(({ name }) => name === 'a_total'),
    { values: [{ value: 6 }] },
    'what the ended one counted, and what the replacement did',
  )
})

t.test('of a sidecar that has no worker at the moment there is little to tell', async (t) => {
  const { create, forks, told, slept } = supervising((fork, at) => {
    if (at === 2) fork.instead.make = 'nothing'
    if (at === 3) fork.instead.make = 'nothing'
  })
  const app = await create()
  await app.start()
  for (const fork of forks) fork.ends(null, 'SIGKILL')
  await eventually(() => slept.length === 2, 'their replacements')
  t.same(await told().ready(), [{ name: 'accepting', ok: false }])
  t.same(await told().keys(), [])
  t.same(await told().jwks(), { keys: [] })
  t.match(await told().exposition.metrics(), /^auth_sidecar_ready 0$/m, 'and not nothing')
})

t.test('a replacement that waits for its database makes nothing unready while others serve', async (t) => {
  const registry = new Registry()
  new Gauge({ name: 'auth_sidecar_ready', help: 'a', registers: [registry], aggregator: 'min' }).set(0)
  new Counter({ name: 'a_total', help: 'a', registers: [registry] }).inc(2)
  const unready = await registry.getMetricsAsJSON()
  const { create, forks, told, clock } = supervising((fork, at) => {
    fork.state = { checks: [{ name: 'credentials', ok: at < 2 }], jwks: { keys: at < 2 ? ['k'] : [] } }
    if (at < 2) return
    fork.instead.listen = 'nothing'
    fork.state = { ...fork.state, metrics: unready }
  })
  const app = await create()
  await app.start()
  forks[0]?.ends(1, null)
  await eventually(() => forks[2]?.said.at(-1)?.do === 'listen', 'the replacement')
  t.same(await told().ready(), [
    { name: 'credentials', ok: true },
    { name: 'accepting', ok: true },
  ])
  t.same(await told().jwks(), { keys: ['k'] })
  const told1 = await told().exposition.metrics()
  t.match(told1, /^auth_sidecar_ready 1$/m)
  t.match(told1, /^a_total 2$/m, 'what it counts counts')
  forks[1]?.ends(1, null)
  await eventually(() => forks[3]?.said.at(-1)?.do === 'listen', 'the other replacement')
  clock.now += 100
  t.same(await told().ready(), [
    { name: 'credentials', ok: false },
    { name: 'accepting', ok: false },
  ])
  t.match(await told().exposition.metrics(), /^auth_sidecar_ready 0$/m)
})
