import { EventEmitter } from 'node:events'
import t from 'tap'
import { Signals } from '../../src/cli/signals.ts'

function scene({ echoMs = 0 } = {}) {
  const exits: number[] = []
  const process = Object.assign(new EventEmitter(), { exit: (code: number) => void exits.push(code) })
  const clock = { now: 1000 }
  const signals = new Signals({ process, echoMs, monotonicNow: () => clock.now })
  return { process, signals, send: (signal: string) => process.emit(signal), exits, clock }
}

t.test('signals keep their default effect until they are listened for', async (t) => {
  t.same(scene().process.eventNames(), [])
})

t.test('the first signal requests a stop, also before the request is awaited', async (t) => {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    const { process, signals, send, exits } = scene()
    void signals.listen()
    send(signal)
    t.equal(await signals.listen(), signal)
    t.equal(process.listenerCount(signal), 1)
    t.same(exits, [])
  }
})

t.test('the second signal ends the process, after the last act', async (t) => {
  const { signals, send, exits } = scene()
  const before: number[] = []
  void signals.listen()
  signals.beforeExit = () => void before.push(exits.length)
  send('SIGTERM')
  send('SIGINT')
  t.same({ before, exits }, { before: [0], exits: [1] })
})

t.test('a duplicate of the first signal is ignored', async (t) => {
  const { signals, send, exits, clock } = scene({ echoMs: 500 })
  void signals.listen()
  send('SIGINT')
  clock.now += 499
  send('SIGINT')
  t.same(exits, [])
  clock.now += 1
  send('SIGINT')
  t.same(exits, [1])
})

t.test('SIGHUP acts each time, and once for all that arrived before', async (t) => {
  const { signals, send, exits } = scene()
  void signals.listen()
  send('SIGHUP')
  send('SIGHUP')
  let acted = 0
  signals.onHangUp(() => void acted++)
  t.equal(acted, 1)
  send('SIGHUP')
  t.equal(acted, 2)
  t.same(exits, [])
  scene().signals.onHangUp(() => t.fail('no signal arrived'))
})

t.test('ignored signals have no effect', async (t) => {
  const { signals, send, exits } = scene()
  signals.ignore()
  for (const signal of ['SIGTERM', 'SIGTERM', 'SIGINT', 'SIGHUP']) send(signal)
  t.same(exits, [])
})
