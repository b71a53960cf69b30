import t from 'tap'
import { createLifeCycle, type LifeCycleOptions, StoppedWhileStarting } from '../../src/ops/life-cycle.ts'

const ADDRESS = { address: '127.0.0.1', family: 'IPv4', port: 1 }

interface Parts {
  readonly inFlight?: number
  readonly deadlineSeconds?: number
  readonly listen?: LifeCycleOptions['listener']['listen']
  readonly whenComplete?: LifeCycleOptions['trust']['whenComplete']
}

/** A life cycle whose parts record the calls. Requests in flight end when the test calls `finish`. */
function scene({ inFlight = 0, deadlineSeconds = 5, ...parts }: Parts = {}) {
  const calls: string[] = []
  const record = async (call: string) => void calls.push(call)
  let open = inFlight
  let onClosed = () => {}
  const finish = () => {
    open = 0
    onClosed()
  }
  const lifeCycle = createLifeCycle({
    listener: {
      get inFlight() {
        return open
      },
      listen: () => record('listen').then(parts.listen ?? (() => ADDRESS)),
      close: () =>
        new Promise((resolve) => {
          calls.push('close')
          onClosed = resolve
          if (open === 0) resolve()
        }),
      closeIdle() {},
      closeTunnels() {},
      abort() {
        const cut = open
        finish()
        return cut
      },
    },
    admin: { listen: () => record('listen admin').then(() => ADDRESS), close: () => record('close admin') },
    trust: { whenComplete: parts.whenComplete ?? (async () => true), stop: () => record('stop trust') },
    forwarder: { close: () => void calls.push('close upstreams') },
    shutdown: { lameDuckSeconds: 0, deadlineSeconds },
    onListening: () => void calls.push('listening'),
    onDraining: (count) => void calls.push(`draining ${count}`),
    onStopped: ({ drained, cut }) => void calls.push(`drained ${drained}, cut ${cut}`),
  })
  return { lifeCycle, calls, finish }
}

t.test('the admin listener starts first and stops last, and each step happens once', async (t) => {
  const { lifeCycle, calls, finish } = scene({ inFlight: 2 })
  t.equal(lifeCycle.isRunning(), false)
  t.equal(lifeCycle.start(), lifeCycle.start())
  t.strictSame(await lifeCycle.start(), { data: ADDRESS, admin: ADDRESS })
  t.equal(lifeCycle.isRunning(), true)
  const stopped = lifeCycle.stop({ lameDuck: true })
  t.equal(lifeCycle.stop(), stopped)
  t.strictSame([lifeCycle.isRunning(), lifeCycle.isDraining(), lifeCycle.isCutting()], [false, true, false])
  await new Promise(setImmediate)
  finish()
  t.strictSame(await stopped, { drained: 2, cut: 0 })
  t.strictSame(calls, [
    ...['listen admin', 'listen', 'listening', 'draining 2', 'close'],
    ...['close upstreams', 'stop trust', 'close admin', 'drained 2, cut 0'],
  ])
})

t.test('requests that outlive the deadline are cut off', async (t) => {
  const { lifeCycle, calls } = scene({ inFlight: 3, deadlineSeconds: 0 })
  await lifeCycle.start()
  t.strictSame(await lifeCycle.stop(), { drained: 0, cut: 3 })
  t.equal(lifeCycle.isCutting(), true)
  t.strictSame(calls.slice(3, 5), ['draining 3', 'close'])
})

t.test('no client is accepted while keys are awaited, and a stop ends the start', async (t) => {
  let complete = (_: boolean) => {}
  const { lifeCycle, calls } = scene({
    whenComplete: () =>
      new Promise((resolve) => {
        complete = resolve
      }),
  })
  const started = t.rejects(lifeCycle.start(), StoppedWhileStarting)
  await new Promise(setImmediate)
  const stopped = lifeCycle.stop({ lameDuck: true })
  complete(false)
  await Promise.all([started, stopped])
  t.notOk(calls.includes('listen'))
})

t.test('a start without a port closes what it has opened', async (t) => {
  const { lifeCycle, calls } = scene({ listen: () => Promise.reject(new Error('EADDRINUSE')) })
  await t.rejects(lifeCycle.start(), { message: 'EADDRINUSE' })
  t.strictSame(calls, ['listen admin', 'listen', 'close admin', 'stop trust'])
})
