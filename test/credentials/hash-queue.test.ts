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

t.test('jobs run one at a time, in order, and give their results', async (t) => {
  const queue = createHashQueue()
  const first = job()
  const second = job()
  const results = [queue.run(first.run), queue.run(second.run)]
  await turn()
  t.equal(first.started(), true)
  t.equal(second.started(), false, 'the second waits')
  first.resolve('one')
  await turn()
  t.equal(second.started(), true)
  second.resolve('two')
  t.same(await Promise.all(results), ['one', 'two'])
})

t.test('beyond the waiting places a job is not run', async (t) => {
  const queue = createHashQueue({ maxWaiting: 2 })
  const jobs = [job(), job(), job()]
  const results = jobs.map(({ run }) => queue.run(run))
  const surplus = job()
  t.equal(queue.run(surplus.run), undefined)
  jobs[0]?.resolve('done')
  await results[0]
  const late = job()
  const lateResult = queue.run(late.run)
  t.ok(lateResult, 'a place is free again')
  for (const { resolve } of [...jobs, late]) resolve('done')
  await Promise.all([...results, lateResult])
  t.equal(surplus.started(), false)
})

t.test('a job that fails tells its caller and holds up nobody', async (t) => {
  const queue = createHashQueue({ maxWaiting: 1 })
  const bad = job()
  const failing = queue.run(bad.run)
  const next = queue.run(async () => 'next')
  bad.reject(new Error('no memory'))
  await t.rejects(async () => failing, { message: 'no memory' })
  t.equal(await next, 'next')
  for (let times = 0; times < 5; times++)
    t.equal(await queue.run(async () => 'again'), 'again', 'no place is lost')
})
