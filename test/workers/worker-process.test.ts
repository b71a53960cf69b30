import t from 'tap'
import type { RegisteredFamily } from '../../src/ops/status/metric-families.ts'
import type { PlainError, WorkerState } from '../../src/workers/messages.ts'
import { type ForkedWorker, WorkerProcess } from '../../src/workers/worker-process.ts'
import { accepted } from '../config/support.ts'
import { FakeFork } from './fake-fork.ts'

function forked() {
  const fork = new FakeFork()
  const notes: unknown[] = []
  const worker = new WorkerProcess(fork as unknown as ForkedWorker, {
    revive: ({ message }: PlainError) => new TypeError(message),
    onNote: (note) => notes.push(note),
  })
  return { fork, worker, notes }
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
  await new Promise(setImmediate)
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

t.test('an answer that comes too late for whoever asked still counts', async (t) => {
  const { fork, worker } = forked()
  const family = { name: 'a', values: [{ labels: {}, value: 1 }] } as unknown as RegisteredFamily
  await t.rejects(worker.tell('all', 1))
  fork.says({ did: 'tell', question: 1, state: { ...state, metrics: [family] } })
  t.same(worker.metrics, [family])
})

t.test('whoever asks for the same thing twice is answered twice', async (t) => {
  const { fork, worker } = forked()
  fork.says({ did: 'begin' })
  const reloads = [worker.reload(), worker.reload(), worker.reload()]
  await new Promise(setImmediate)
  t.same(fork.said, [{ do: 'reload' }, { do: 'reload' }, { do: 'reload' }])
  fork.says({ did: 'reload' })
  fork.says({ did: 'fail', what: 'reload', error: { name: 'Error', message: 'no' } })
  fork.ends(1, null)
  t.same(
    (await Promise.allSettled(reloads)).map(({ status }) => status),
    ['fulfilled', 'rejected', 'rejected'],
  )
})

t.test('a worker that does not listen to anything yet is told to reload when it does', async (t) => {
  const { fork, worker } = forked()
  const reloaded = worker.reload()
  await new Promise(setImmediate)
  t.same(fork.said, [])
  fork.says({ did: 'begin' })
  await new Promise(setImmediate)
  fork.says({ did: 'reload' })
  await reloaded
})

t.test('a process that could not be made has ended', async (t) => {
  const { fork, worker } = forked()
  const made = worker.make(config)
  const error = Object.assign(new Error('spawn EAGAIN'), { code: 'EAGAIN' })
  fork.fails(error)
  await t.rejects(made, { message: 'a worker ended' })
  t.same(await worker.ended, { code: null, signal: null, error })
})

t.test('an error of a process that lives is not its end', async (t) => {
  const { fork, worker } = forked()
  fork.emit('error', new Error('kill EPERM'))
  fork.ends(1, null)
  t.same(await worker.ended, { code: 1, signal: null })
})

t.test('its silence is counted until it says anything', async (t) => {
  const { fork, worker } = forked()
  t.same([worker.look(), worker.look(), worker.look()], [0, 1, 2])
  fork.says({ did: 'learn', note: { pair: 'a b', failed: true } })
  t.equal(worker.look(), 0)
})
