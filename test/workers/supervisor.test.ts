import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { address } from './fake-fork.ts'
import { supervising } from './supervising.ts'

t.test('the first worker finds what is wrong before there is a second', async (t) => {
  const { create, forks, admin } = supervising((fork) => {
    fork.instead.make = { did: 'fail', what: 'make', error: { name: 'UnusableTrust', message: 'keys: none' } }
  })
  await t.rejects(create(), { name: 'UnusableTrust', message: 'keys: none' })
  t.equal(forks.length, 1)
  t.equal(forks[0]?.killed, 'SIGKILL')
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

t.test('a worker that dies while others begin ends the start, the first one included', async (t) => {
  const { create, forks, admin, log } = supervising((fork, at) => {
    if (at === 1) fork.instead.listen = 'nothing'
  })
  const app = await create()
  const started = t.rejects(app.start(), { message: 'a worker ended' })
  await eventually(() => forks[1]?.said.at(-1)?.do === 'listen', 'the second worker')
  forks[0]?.ends(null, 'SIGSEGV')
  await started
  t.equal(forks[1]?.killed, 'SIGKILL')
  t.notOk(admin.listening)
  t.match(log.at(-1), { msg: 'worker ended', signal: 'SIGSEGV' })
})

t.test('told to stop while its first worker begins to listen, it starts no other', async (t) => {
  const { create, forks } = supervising((fork) => {
    fork.instead.listen = 'nothing'
    fork.instead.stop = 'nothing'
  })
  const app = await create()
  const started = app.start()
  const [first] = forks
  await eventually(() => first?.said.at(-1)?.do === 'listen', 'the first worker')
  const stopped = app.stop()
  await eventually(() => first?.said.at(-1)?.do === 'stop', 'the word to stop')
  first?.says({ did: 'listen', address })
  await started
  first?.says({ did: 'stop', report: { drained: 0, cut: 0 } })
  first?.ends(0, null)
  t.same(await stopped, { drained: 0, cut: 0 })
  t.equal(forks.length, 1)
})
