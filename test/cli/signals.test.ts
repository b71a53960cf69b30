import { EventEmitter } from 'node:events'
import t from 'tap'
import { Signals } from '../../src/cli/signals.ts'

/** The signals of a process that can be told of some, and what came of it. */
function scene({ echoMs = 0 } = {}) {
  const exits: number[] = []
  const process = Object.assign(new EventEmitter(), { exit: (code: number) => void exits.push(code) })
  const clock = { now: 1000 }
  const signals = new Signals({ process, echoMs, monotonicNow: () => clock.now })
  const send = (signal: string) => process.emit(signal, signal)
  return { process, signals, send, exits, clock }
}

t.test('nothing is heard before it is asked for: signals do what they do to any process', async (t) => {
  const { process } = scene()
  t.same(process.eventNames(), [])
})

t.test('the first signal asks to stop, also when nobody waited for it yet', async (t) => {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    const { signals, send, exits } = scene()
    signals.hear()
    send(signal)
    t.equal(await signals.stopRequested(), signal)
    t.equal(await signals.stopRequested(), signal, 'whoever asks')
    t.same(exits, [])
  }
})

t.test('whoever waits for a stop hears signals, once', async (t) => {
  const { process, signals, send, exits } = scene()
  const stop = signals.stopRequested()
  signals.hear()
  t.equal(process.listenerCount('SIGINT'), 1)
  send('SIGINT')
  t.equal(await stop, 'SIGINT')
  t.same(exits, [])
})

t.test('the second signal does not ask, and its last act comes first', async (t) => {
  const { signals, send, exits } = scene()
  const before: number[] = []
  signals.hear()
  send('SIGTERM')
  send('SIGINT')
  t.same(exits, [1], 'whether or not there is something left to do')
  signals.lastAct = () => void before.push(exits.length)
  send('SIGTERM')
  t.same(before, [1])
  t.same(exits, [1, 1])
})

t.test('a signal that comes twice at once is one', async (t) => {
  const { signals, send, exits, clock } = scene({ echoMs: 500 })
  signals.hear()
  send('SIGINT')
  clock.now += 499
  send('SIGINT')
  t.same(exits, [])
  clock.now += 1
  send('SIGINT')
  t.same(exits, [1])
})

t.test('SIGHUP acts each time, and once for those that came before there was anything to do', async (t) => {
  const { signals, send, exits } = scene()
  signals.hear()
  send('SIGHUP')
  send('SIGHUP')
  let acted = 0
  signals.onHangUp(() => void acted++)
  t.equal(acted, 1)
  send('SIGHUP')
  t.equal(acted, 2)
  t.same(exits, [])
  const quiet = scene()
  quiet.signals.onHangUp(() => t.fail('there was none'))
})

t.test('signals that are ignored end nothing', async (t) => {
  const { process, signals, send, exits } = scene()
  signals.ignore()
  for (const signal of ['SIGTERM', 'SIGTERM', 'SIGINT', 'SIGHUP']) send(signal)
  t.same(process.eventNames(), ['SIGTERM', 'SIGINT', 'SIGHUP'])
  t.same(exits, [])
})
