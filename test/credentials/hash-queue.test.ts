import t from 'tap'
import { createHashQueue } from '../../src/credentials/hash-queue.ts'

/** A job that ends when it is told to. */
function job() {
  const { promise, resolve, reject } = deferred()
  let started = false
  const run = () => {
    started = true
    return promise
  }
  return { run, resolve, reject, started: () => started }
}

function deferred() {
  let resolve: (value: string) => void = () => {}
  let reject: (error: Error) => void = () => {}
  const promise = new Promise<string>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

/** A queue whose jobs are named, end when they are told to, and leave a trace. */
function scene(maxWaiting?: number) {
  const queue = createHashQueue(maxWaiting === undefined ? {} : { maxWaiting })
  const started: string[] = []
  const turnedAway: string[] = []
  const running: (() => void)[] = []
  const ask = (client: string, name: string) => {
    const outcome = queue.run(client, async () => {
      started.push(name)
      await new Promise<void>((resolve) => running.push(resolve))
      return name
    })
    void outcome.then(({ ran }) => ran || turnedAway.push(name))
    return outcome
  }
  /** Ends the job that runs. */
  const next = async () => {
    t.equal(running.length, 1, 'exactly one job runs')
    running.shift()?.()
    await turn()
  }
  return { ask, next, started, turnedAway, running }
}

t.test('jobs run one at a time, in order, and give their results', async (t) => {
  const queue = createHashQueue()
  const first = job()
  const second = job()
  const results = [queue.run('a', first.run), queue.run('a', second.run)]
  await turn()
  t.equal(first.started(), true)
  t.equal(second.started(), false, 'the second waits')
  first.resolve('one')
  await turn()
  t.equal(second.started(), true)
  second.resolve('two')
  t.same(await Promise.all(results), [
    { ran: true, result: 'one' },
    { ran: true, result: 'two' },
  ])
})

t.test('beyond the waiting places a job is not run', async (t) => {
  const queue = createHashQueue({ maxWaiting: 2 })
  const jobs = [job(), job(), job()]
  const results = jobs.map(({ run }) => queue.run('a', run))
  const surplus = job()
  t.same(await queue.run('a', surplus.run), { ran: false })
  t.same(await createHashQueue({ maxWaiting: 0 }).run('a', async () => 1), { ran: true, result: 1 })
  jobs[0]?.resolve('done')
  await results[0]
  await turn()
  const late = job()
  const lateResult = queue.run('a', late.run)
  for (const { resolve } of [...jobs, late]) resolve('done')
  t.same(await lateResult, { ran: true, result: 'done' }, 'a place is free again')
  await Promise.all(results)
  t.equal(surplus.started(), false)
})

t.test('clients take turns, whatever they have waiting', async (t) => {
  const { ask, next, started } = scene()
  for (let at = 1; at <= 5; at++) void ask('greedy', `greedy ${at}`)
  void ask('other', 'other 1')
  void ask('third', 'third 1')
  void ask('other', 'other 2')
  for (let at = 0; at < 8; at++) await next()
  t.same(started, [
    'greedy 1',
    'greedy 2',
    'other 1',
    'third 1',
    'greedy 3',
    'other 2',
    'greedy 4',
    'greedy 5',
  ])
})

t.test(
  'a flood from one client turns nobody else away, and delays others by one job of its own',
  async (t) => {
    const { ask, next, started, turnedAway } = scene(4)
    const flood = (times: number) => {
      for (let at = 0; at < times; at++) void ask('greedy', 'greedy')
    }
    flood(10)
    await turn()
    t.equal(turnedAway.length, 5, 'one runs, four wait')
    for (let round = 0; round < 30; round++) {
      void ask(`client ${round}`, `client ${round}`)
      flood(5)
      await next()
      flood(5)
      await next()
      t.ok(started.includes(`client ${round}`), 'at most one job of the flood came before it')
    }
    await turn()
    t.notOk(turnedAway.some((name) => name !== 'greedy'))
  },
)

t.test('the oldest job of the client with most gives way, and only to one with fewer', async (t) => {
  const { ask, next, started, turnedAway } = scene(4)
  void ask('a', 'a1')
  for (const name of ['a2', 'a3', 'a4']) void ask('a', name)
  void ask('b', 'b1')
  void ask('c', 'c1')
  await turn()
  t.same(turnedAway, ['a2'])
  void ask('b', 'b2')
  await turn()
  t.same(turnedAway, ['a2', 'b2'], 'two each would be no fairer')
  void ask('d', 'd1')
  await turn()
  t.same(turnedAway, ['a2', 'b2', 'a3'])
  void ask('e', 'e1')
  await turn()
  t.same(turnedAway, ['a2', 'b2', 'a3', 'e1'], 'among clients with one job each who came first stays')
  for (let at = 0; at < 5; at++) await next()
  t.same(started, ['a1', 'a4', 'b1', 'c1', 'd1'])
})

t.test('a job that fails tells its caller and holds up nobody', async (t) => {
  const queue = createHashQueue({ maxWaiting: 1 })
  const bad = job()
  const failing = queue.run('a', bad.run)
  const next = queue.run('a', async () => 'next')
  bad.reject(new Error('no memory'))
  await t.rejects(failing, { message: 'no memory' })
  t.same(await next, { ran: true, result: 'next' })
  for (let times = 0; times < 5; times++)
    t.same(await queue.run('a', async () => 'again'), { ran: true, result: 'again' }, 'no place is lost')
})
