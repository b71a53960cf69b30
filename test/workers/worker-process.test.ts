import t from 'tap'
import type { RegisteredFamily } from '../../src/ops/status/metric-families.ts'
import type { PlainError, WorkerState } from '../../src/workers/messages.ts'
import { type ForkedWorker, WorkerProcess } from '../../src/workers/worker-process.ts'
import { accepted } from '../config/support.ts'
import { FakeFork } from './fake-fork.ts'

function forked() {
  const clock = { now: 1000 }
  const fork = new FakeFork()
  const notes: unknown[] = []
  const worker = new WorkerProcess(fork as unknown as ForkedWorker, {
    revive: ({ message }: PlainError) => new TypeError(message),
    onNote: (note) => notes.push(note),
    monotonicNow: () => clock.now,
  })
  return { fork, worker, notes, clock }
}

const { config } = accepted({})
const state: WorkerState = { checks: [], keys: [], jwks: { keys: [] }, metrics: [], rssBytes: 1 }
const address = { address: '::', family: 'IPv6', port: 8080 }

t.test('is asked in words and answers in words', async (t) => {
  const { fork, worker } = forked()
  t.equal(worker.pid, 4711)
  const made = worker.make(config)
  t.same(fork.said, [], 'it does not listen yet')
  fork.says({ did: 'begin' })
  await new Promise(setImmediate)
  fork.says({ did: 'make' })
  await made
  t.notOk(worker.listening)
  const listening = worker.listen()
  fork.says({ did: 'listen', address })
  t.equal(await listening, address)
  t.ok(worker.listening)
  const reloaded = worker.reload()
  fork.says({ did: 'reload' })
  await reloaded
  worker.learn({ pair: 'a b', failed: true })
  const stopped = worker.stop(true)
  await new Promise(setImmediate)
  fork.says({ did: 'stop', report: { drained: 2, cut: 1 } })
  t.same(await stopped, { drained: 2, cut: 1 })
  t.same(fork.said, [
    { do: 'make', config },
    { do: 'listen' },
    { do: 'reload' },
    { do: 'learn', note: { pair: 'a b', failed: true } },
    { do: 'stop', lameDuck: true },
  ])
})

t.test('questions that cross are told apart, and the last answer is kept', async (t) => {
  const { fork, worker } = forked()
  const [first, second] = [worker.tell('status', 1000), worker.tell('all', 1000)]
  const late = { ...state, jwks: 'late' }
  fork.says({ did: 'tell', question: 2, state })
  fork.says({ did: 'tell', question: 1, state: late })
  t.same(await Promise.all([first, second]), [late, state])
  fork.says({ did: 'tell', question: 9, state }) // to a question that nobody waits for any more
})

t.test('what it told last of each metric is kept', async (t) => {
  const { fork, worker } = forked()
  const family = (name: string, value: number) =>
    ({ name, values: [{ labels: {}, value }] }) as unknown as RegisteredFamily
  for (const metrics of [[family('a', 1), family('b', 1)], [family('a', 2)]]) {
    const told = worker.tell('all', 1000)
    const question = fork.said.length
    fork.says({ did: 'tell', question, state: { ...state, metrics } })
    await told
  }
  t.same(worker.metrics, [family('a', 2), family('b', 1)])
})

t.test('a worker that does not answer keeps nobody waiting', async (t) => {
  const { worker } = forked()
  await t.rejects(worker.tell('all', 1), { message: 'a worker is silent' })
})

t.test('a worker that ends rejects whatever it was asked', async (t) => {
  const { fork, worker } = forked()
  const listening = worker.listen()
  fork.says({ did: 'listen', address })
  await listening
  const asked = [worker.reload(), worker.tell('all', 1000), worker.stop(false)]
  fork.emit('exit', null, 'SIGKILL')
  for (const { status } of await Promise.allSettled(asked)) t.equal(status, 'rejected')
  t.same(await worker.ended, { code: null, signal: 'SIGKILL' })
  t.notOk(worker.listening)
  const said = fork.said.length
  await t.rejects(worker.reload(), { message: 'a worker ended' })
  worker.learn({ pair: 'a b', failed: false })
  t.equal(fork.said.length, said, 'nothing is said to nobody')
})

t.test('a worker whose channel is closed is not written to', async (t) => {
  const { fork, worker } = forked()
  fork.connected = false
  fork.says({ did: 'begin' })
  await t.rejects(worker.make(config), { message: 'a worker ended' })
})

t.test('what a worker finds wrong is what whoever asked is told', async (t) => {
  const { fork, worker } = forked()
  const made = worker.make(config)
  fork.says({ did: 'begin' })
  await new Promise(setImmediate)
  fork.says({ did: 'fail', what: 'make', error: { name: 'Error', message: 'keys: none' } })
  await t.rejects(made, new TypeError('keys: none'))
})

t.test('passes on what it learnt of logins', async (t) => {
  const { fork, notes } = forked()
  fork.says({ did: 'learn', note: { pair: 'a b', failed: true } })
  t.same(notes, [{ pair: 'a b', failed: true }])
})

t.test('can be ended', async (t) => {
  const { fork, worker } = forked()
  worker.kill()
  t.equal(fork.killed, 'SIGKILL')
})
