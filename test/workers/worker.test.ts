import { EventEmitter } from 'node:events'
import t from 'tap'
import type { ServingApp } from '../../src/app.ts'
import { type FromWorker, plainError, type ToWorker, type WorkerState } from '../../src/workers/messages.ts'
import { type Channel, runWorker } from '../../src/workers/worker.ts'
import { accepted } from '../config/support.ts'

/** The channel to a supervisor that the test plays. */
class FakeChannel extends EventEmitter {
  readonly heard: FromWorker[] = []
  #onHeard = () => {}
  send(message: FromWorker, _handle: undefined, _options: undefined, done: () => void): boolean {
    this.heard.push(message)
    done()
    this.#onHeard()
    return true
  }
  /** Says something; resolves with the answer. */
  async asks(message: ToWorker): Promise<FromWorker | undefined> {
    const answered = new Promise<void>((resolve) => {
      this.#onHeard = resolve
    })
    this.emit('message', message)
    await answered
    return this.heard.at(-1)
  }
}

const { config } = accepted({})
const address = { address: '::', family: 'IPv6', port: 8080 }
const state: WorkerState = { checks: [], keys: [], jwks: { keys: [] }, metrics: [], rssBytes: 1 }

/** A worker whose sidecar notes what it is told. */
function running(failing: Partial<Record<'make' | 'start', Error>> = {}) {
  const told: unknown[] = []
  let note: (note: { pair: string; failed: boolean }) => void = () => {}
  const app: ServingApp = {
    start: async () => {
      if (failing.start !== undefined) throw failing.start
      return { data: address, admin: address }
    },
    reload: async () => void told.push('reload'),
    stop: async (how) => {
      told.push(how)
      return { drained: 3, cut: 0 }
    },
    sources: {
      ready: () => state.checks,
      keys: () => state.keys,
      jwks: () => state.jwks,
      exposition: { contentType: '', metrics: async () => '' },
      statusMetrics: async () => [],
      rssBytes: () => state.rssBytes,
    },
    metrics: {
      all: async () => [],
      counts: async () => [],
      status: async () => {
        told.push('status')
        return []
      },
    },
    learn: (learnt) => void told.push(learnt),
    cut: () => void told.push('cut'),
  }
  const channel = new FakeChannel()
  const ended = runWorker({
    channel: channel as unknown as Channel,
    createApp: async (given, { onThrottleNote }) => {
      if (failing.make !== undefined) throw failing.make
      told.push(given)
      note = onThrottleNote
      return app
    },
  })
  return { channel, ended, told, noted: (learnt: { pair: string; failed: boolean }) => note(learnt) }
}

t.test('does what it is told, and ends when it has stopped', async (t) => {
  const { channel, ended, told, noted } = running()
  t.same(await channel.asks({ do: 'make', config }), { did: 'make' })
  t.same(await channel.asks({ do: 'listen' }), { did: 'listen', address })
  t.same(await channel.asks({ do: 'reload' }), { did: 'reload' })
  t.same(await channel.asks({ do: 'tell', question: 7, extent: 'status' }), {
    did: 'tell',
    question: 7,
    state,
  })
  noted({ pair: 'a b', failed: true })
  t.same(channel.heard.at(-1), { did: 'learn', note: { pair: 'a b', failed: true } })
  channel.emit('message', { do: 'learn', note: { pair: 'c d', failed: false } })
  t.same(await channel.asks({ do: 'stop', lameDuck: true }), { did: 'stop', report: { drained: 3, cut: 0 } })
  await ended
  t.same(told, [config, 'reload', 'status', { pair: 'c d', failed: false }, { lameDuck: true }])
})

t.test('says what is wrong with keys, credentials or its port', async (t) => {
  const unusable = running({ make: new TypeError('keys: none') })
  t.match(await unusable.channel.asks({ do: 'make', config }), {
    did: 'fail',
    what: 'make',
    error: { name: 'TypeError', message: 'keys: none' },
  })
  const inUse = Object.assign(new Error('in use'), { code: 'EADDRINUSE', syscall: 'listen', port: 80 })
  const unheard = running({ start: inUse })
  await unheard.channel.asks({ do: 'make', config })
  t.match(await unheard.channel.asks({ do: 'listen' }), {
    did: 'fail',
    error: { message: 'in use', code: 'EADDRINUSE', syscall: 'listen', port: 80 },
  })
})

t.test('one that has nothing yet stops all the same', async (t) => {
  const { channel, ended } = running()
  channel.emit('message', { do: 'listen' })
  channel.emit('message', { do: 'tell', question: 1, extent: 'all' })
  channel.emit('message', { do: 'learn', note: { pair: 'a b', failed: true } })
  t.same(await channel.asks({ do: 'reload' }), { did: 'reload' })
  t.same(await channel.asks({ do: 'stop', lameDuck: true }), { did: 'stop', report: { drained: 0, cut: 0 } })
  await ended
})

t.test('an error travels as what it says, never as its stack', async (t) => {
  const error = plainError(Object.assign(new RangeError('no'), { code: 'E', secret: 'x' }))
  t.same(JSON.parse(JSON.stringify(error)), { name: 'RangeError', message: 'no', code: 'E' })
  t.same(plainError('text'), { name: 'Error', message: 'unknown' })
})

t.test('what is under way when its process ends is cut, so that no half of it looks whole', async (t) => {
  const { channel, told } = running()
  channel.emit('exit') // before there is anything to cut
  await channel.asks({ do: 'make', config })
  channel.emit('exit')
  t.same(told, [config, 'cut'])
})
