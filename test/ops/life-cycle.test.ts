import t from 'tap'
import { createLifeCycle, StoppedWhileStarting } from '../../src/ops/life-cycle.ts'

const ADDRESS = { address: '127.0.0.1', family: 'IPv4', port: 1 }

/** A life whose parts note what is done to them. `complete`: when, and whether, everything is there. */
function life(
  complete: Promise<boolean> = Promise.resolve(true),
  listens: Promise<void> = Promise.resolve(),
) {
  const done: string[] = []
  const note = (what: string) => async () => void done.push(what)
  const lifeCycle = createLifeCycle({
    listener: {
      inFlight: 0,
      listen: async () => {
        done.push('listen')
        await listens
        return ADDRESS
      },
      close: note('close'),
      closeUnused: () => {},
      closeTunnels: () => {},
      cut: () => 0,
    },
    admin: {
      listen: async () => {
        done.push('listen admin')
        return ADDRESS
      },
      close: note('close admin'),
    },
    trust: { whenComplete: () => complete, stop: note('stop trust') },
    forwarder: { close: () => void done.push('close upstreams') },
    deadlines: { monotonicNow: () => 0, stop: () => void done.push('stop deadlines') },
    shutdown: { lameDuckSeconds: 0, deadlineSeconds: 1 },
    onListening: ({ data }) => void done.push(`listening at ${data.address}`),
    onStopped: ({ drained }) => void done.push(`drained ${drained}`),
  })
  return { lifeCycle, done }
}

t.test('starts the admin listener first and stops it last, each once', async (t) => {
  const { lifeCycle, done } = life()
  t.notOk(lifeCycle.isRunning())
  t.equal(lifeCycle.start(), lifeCycle.start())
  t.strictSame(await lifeCycle.start(), { data: ADDRESS, admin: ADDRESS })
  t.ok(lifeCycle.isRunning())
  const stopped = lifeCycle.stop()
  t.ok(lifeCycle.isStopping())
  t.notOk(lifeCycle.isRunning())
  t.equal(lifeCycle.stop({ lameDuck: true }), stopped)
  t.strictSame(await stopped, { drained: 0, cut: 0 })
  t.notOk(lifeCycle.isCutting())
  t.strictSame(done, [
    'listen admin',
    'listen',
    'listening at 127.0.0.1',
    'close',
    'close upstreams',
    'stop trust',
    'close admin',
    'stop deadlines',
    'drained 0',
  ])
})

t.test('lets nobody in while something is waited for, and gives up when it is told to stop', async (t) => {
  let say: (complete: boolean) => void = () => {}
  const { lifeCycle, done } = life(
    new Promise((resolve) => {
      say = resolve
    }),
  )
  const started = t.rejects(lifeCycle.start(), StoppedWhileStarting)
  const stopped = lifeCycle.stop({ lameDuck: true })
  say(false)
  await started
  await stopped
  t.notOk(done.includes('listen'))
  t.same(done.slice(-2), ['stop deadlines', 'drained 0'])
})

t.test('a start that cannot be finished takes back what it had begun', async (t) => {
  const { lifeCycle, done } = life(Promise.resolve(true), Promise.reject(new Error('EADDRINUSE')))
  await t.rejects(lifeCycle.start(), { message: 'EADDRINUSE' })
  t.strictSame(done, ['listen admin', 'listen', 'close admin', 'stop trust'])
  t.notOk(lifeCycle.isRunning())
})
