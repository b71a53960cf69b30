import { Counter, Registry } from 'prom-client'
import t from 'tap'
import { createLog } from '../../src/ops/log.ts'
import type { AdminSources } from '../../src/ops/sidecar-admin.ts'
import { revive } from '../../src/workers/app-of-workers.ts'
import type { FromWorker, ToWorker, WorkerState } from '../../src/workers/messages.ts'
import { createSupervisor } from '../../src/workers/supervisor.ts'
import type { ForkedWorker } from '../../src/workers/worker-process.ts'
import { accepted } from '../config/support.ts'
import { eventually } from '../support/eventually.ts'
import { FakeFork } from './fake-fork.ts'

const { config } = accepted({ yaml: 'shutdown: { lameDuckSeconds: 5, deadlineSeconds: 25 }' })
const address = { address: '::', family: 'IPv6', port: 8082 }

/** A worker that does as it is told, unless the test wants something else said. */
class Obedient extends FakeFork {
  instead: Partial<Record<ToWorker['do'], FromWorker | 'nothing'>> = {}
  state: Partial<WorkerState> = {}

  constructor() {
    super()
    setImmediate(() => this.says({ did: 'begin' }))
  }

  override send(message: ToWorker): boolean {
    super.send(message)
    const answer = this.instead[message.do] ?? this.#answer(message)
    if (answer !== 'nothing') setImmediate(() => this.says(answer))
    if (message.do === 'stop' && answer !== 'nothing') setImmediate(() => this.ends(0, null))
    return true
  }

  ends(code: number | null, signal: string | null): void {
    this.emit('exit', code, signal)
  }

  #answer(message: ToWorker): FromWorker | 'nothing' {
    switch (message.do) {
      case 'listen':
        return { did: 'listen', address }
      case 'stop':
        return { did: 'stop', report: { drained: 1, cut: 0 } }
      case 'tell':
        return {
          did: 'tell',
          question: message.question,
          state: { checks: [], keys: [], jwks: { keys: ['k'] }, metrics: [], rssBytes: 7, ...this.state },
        }
      case 'learn':
        return 'nothing'
      default:
        return { did: message.do }
    }
  }
}

/** A supervisor of two workers that the test plays. */
function supervising(
  prepare: (fork: Obedient, at: number) => void = () => {},
  sleep: () => Promise<unknown> = async () => {},
) {
  const forks: Obedient[] = []
  const log: Record<string, unknown>[] = []
  const slept: number[] = []
  const clock = { now: 0 }
  let sources: AdminSources | undefined
  const admin = { listening: false }
  const create = () =>
    createSupervisor({
      config,
      workers: 2,
      log: createLog('info', { write: (line: string) => void log.push(JSON.parse(line)) }),
      fork: () => {
        const fork = new Obedient()
        prepare(fork, forks.length)
        forks.push(fork)
        return fork as unknown as ForkedWorker
      },
      revive,
      createAdmin: (given) => {
        sources = given
        return {
          listen: async () => {
            admin.listening = true
            return { ...address, port: 8081 }
          },
          close: async () => {
            admin.listening = false
          },
        }
      },
      sleep: (ms) => {
        slept.push(ms)
        return sleep()
      },
      monotonicNow: () => clock.now,
    })
  return {
    create,
    forks,
    log,
    slept,
    clock,
    admin,
    told: () => sources as AdminSources,
    said: (at: number) => forks[at]?.said.map(({ do: what }) => what),
    lines: () => log.map(({ msg }) => msg),
  }
}

t.test('the first worker finds what is wrong before there is a second', async (t) => {
  const { create, forks, admin } = supervising((fork) => {
    fork.instead.make = { did: 'fail', what: 'make', error: { name: 'UnusableTrust', message: 'keys: none' } }
  })
  await t.rejects(create(), { name: 'UnusableTrust', message: 'keys: none' })
  t.equal(forks.length, 1)
  t.notOk(admin.listening)
})

t.test('starts once, listens, and says so', async (t) => {
  const { create, said, lines, log } = supervising()
  const app = await create()
  const [where] = await Promise.all([app.start(), app.start()])
  t.same(where, { data: address, admin: { ...address, port: 8081 } })
  t.same(
    [said(0), said(1)],
    [
      ['make', 'listen'],
      ['make', 'listen'],
    ],
  )
  t.same(lines(), ['worker started', 'worker started', 'listening', 'listening'])
  t.match(log.at(-1), { listener: 'admin', port: 8081 })
})

t.test('a worker that cannot listen ends the start, and leaves nothing behind', async (t) => {
  const { create, forks, admin } = supervising((fork, at) => {
    if (at === 1)
      fork.instead.listen = {
        did: 'fail',
        what: 'listen',
        error: { name: 'Error', message: 'no', code: 'EADDRINUSE', syscall: 'listen', port: 80 },
      }
  })
  const app = await create()
  await t.rejects(app.start(), { message: 'no', code: 'EADDRINUSE', syscall: 'listen', port: 80 })
  t.notOk(admin.listening)
  t.same(
    forks.map(({ killed }) => killed),
    ['SIGKILL', 'SIGKILL'],
  )
})

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
})

t.test('a moment ago is soon enough for whoever asks for many things', async (t) => {
  const { create, told, said, clock } = supervising()
  const app = await create()
  await app.start()
  await Promise.all([told().ready(), told().keys(), told().jwks(), told().rssBytes()])
  clock.now += 99
  await told().statusMetrics()
  t.equal(said(0)?.filter((what) => what === 'tell').length, 1)
  clock.now += 1
  await told().ready()
  t.equal(said(0)?.filter((what) => what === 'tell').length, 2)
})

t.test('a worker that hangs is ended, and what it had counted was fetched before', async (t) => {
  let look = () => {}
  t.intercept(globalThis, 'setInterval', {
    value: (act: () => void, ms: number) => {
      t.equal(ms, 1000)
      look = act
      return { unref: () => undefined }
    },
  })
  const { create, forks, clock, lines } = supervising()
  const app = await create()
  await app.start()
  look()
  t.same(forks[0]?.said.at(-1), { do: 'tell', question: 1, extent: 'counts' })
  await eventually(() => forks[1]?.said.length === 3, 'the other to be asked')
  await new Promise(setImmediate)
  clock.now += 19_999
  look()
  t.equal(forks[0]?.killed, undefined)
  await new Promise(setImmediate)
  for (const fork of forks) fork.instead.tell = 'nothing'
  clock.now += 20_000
  forks[1]?.says({ did: 'learn', note: { pair: 'a b', failed: true } })
  look()
  t.equal(forks[0]?.killed, 'SIGKILL')
  t.equal(forks[1]?.killed, undefined)
  t.ok(lines().includes('worker hangs'))
})

t.test(
  'told to stop while another worker begins to listen, it waits for it, and nothing was cut',
  async (t) => {
    const { create, forks, lines } = supervising((fork, at) => {
      if (at === 1) fork.instead.listen = 'nothing'
    })
    const app = await create()
    const started = t.rejects(app.start(), { name: 'StoppedWhileStarting' })
    await eventually(() => forks[1]?.said.at(-1)?.do === 'listen', 'the second worker')
    const stopped = app.stop({ lameDuck: true })
    const error = { name: 'StoppedWhileStarting', message: 'stopped' }
    forks[1]?.says({ did: 'fail', what: 'listen', error })
    await started
    t.same(await stopped, { drained: 2, cut: 0 })
    t.same(
      forks.map(({ killed }) => killed),
      [undefined, undefined],
    )
    t.notOk(lines().includes('worker not started'))
  },
)

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

t.test('reload reaches every worker, whatever one of them says', async (t) => {
  const { create, forks, said } = supervising()
  const app = await create()
  await app.start()
  const [first] = forks
  if (first !== undefined)
    first.instead.reload = { did: 'fail', what: 'reload', error: { name: 'Error', message: 'no' } }
  await app.reload()
  t.equal(said(0)?.at(-1), 'reload')
  t.equal(said(1)?.at(-1), 'reload')
})

t.test('stops once, adds up, and replaces nobody', async (t) => {
  const { create, forks, said, lines, log, admin } = supervising()
  const app = await create()
  await app.start()
  const [report] = await Promise.all([app.stop({ lameDuck: true }), app.stop()])
  t.same(report, { drained: 2, cut: 0 })
  t.same(forks[0]?.said.at(-1), { do: 'stop', lameDuck: true })
  t.equal(said(0)?.filter((what) => what === 'stop').length, 1)
  t.equal(forks.length, 2)
  t.notOk(admin.listening)
  t.equal(lines().at(-1), 'stopped')
  t.match(log.at(-1), { drained: 2, cut: 0 })
})

t.test('told to stop before it ever let anybody in, it does not go on accepting', async (t) => {
  const { create, forks } = supervising()
  const app = await create()
  await app.stop({ lameDuck: true })
  t.same(forks[0]?.said.at(-1), { do: 'stop', lameDuck: false })
})

t.test('told to stop while its workers begin to listen, it is never ready', async (t) => {
  const { create, forks, told } = supervising()
  const app = await create()
  const started = app.start()
  await eventually(() => forks[1]?.said.at(-1)?.do === 'listen', 'the second worker')
  const stopped = app.stop({ lameDuck: true })
  await started
  t.same(await told().ready(), [{ name: 'accepting', ok: false }])
  t.same(await stopped, { drained: 2, cut: 0 })
})

t.test('a worker that does not stop in its time is ended, and counts as cut', async (t) => {
  const { create, forks } = supervising((fork) => {
    fork.instead.stop = 'nothing'
  })
  const app = await create()
  await app.start()
  t.intercept(globalThis, 'setTimeout', {
    value: Object.assign((act: () => void) => setImmediate(act), { __promisify__: undefined }),
  })
  const stopped = app.stop()
  await eventually(() => forks.every(({ killed }) => killed === 'SIGKILL'), 'their end')
  for (const fork of forks) fork.ends(null, 'SIGKILL')
  t.same(await stopped, { drained: 0, cut: 2 })
})
