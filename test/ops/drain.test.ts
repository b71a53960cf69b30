import t from 'tap'
import { drain, sleep } from '../../src/ops/drain.ts'

/** A listener with requests in flight, a clock that `sleep` moves on, and a record of what was done. */
function scene({ finishAt = Number.POSITIVE_INFINITY, inFlight = 2, slowness = 1 } = {}) {
  const done: string[] = []
  let now = 1000
  let closed: () => void = () => {}
  let open = inFlight
  const listener = {
    get inFlight() {
      return open
    },
    close: () =>
      new Promise<void>((resolve) => {
        done.push(`close at ${now}`)
        closed = resolve
      }),
    closeUnused: () => void done.push(`close unused at ${now}`),
    closeTunnels: () => {
      done.push(`close tunnels at ${now}`)
      if (open === 0) closed()
    },
    cut: () => {
      const cut = open
      open = 0
      done.push(`cut ${cut} at ${now}`)
      closed()
      return cut
    },
  }
  const options = {
    lameDuckMs: 5000,
    deadlineMs: 120,
    monotonicNow: () => now,
    sleep: async (ms: number, unless: Promise<unknown>) => {
      now += ms * slowness
      if (now >= finishAt) {
        open = 0
        closed()
        await unless
      }
    },
  }
  return { listener, options, done }
}

t.test('goes on accepting for the lame duck, then waits for what is under way', async (t) => {
  const { listener, options, done } = scene({ finishAt: 6040 })
  t.strictSame(await drain(listener, options), { drained: 2, cut: 0 })
  t.strictSame(done, ['close at 6000', 'close unused at 6000', 'close tunnels at 6050'])
})

t.test('cuts what is left when the deadline has passed', async (t) => {
  const { listener, options, done } = scene({ inFlight: 3 })
  t.strictSame(await drain(listener, options), { drained: 0, cut: 3 })
  t.strictSame(done, [
    'close at 6000',
    'close unused at 6000',
    'close unused at 6050',
    'close unused at 6100',
    'close tunnels at 6120',
    'cut 3 at 6120',
  ])
})

t.test('the deadline is the clock’s, however slowly a busy machine steps', async (t) => {
  const { listener, options, done } = scene({ slowness: 3 })
  await drain(listener, { ...options, lameDuckMs: 0 })
  t.equal(done.at(-1), 'cut 2 at 1150')
})

t.test('without time to wait everything is cut at once', async (t) => {
  const { listener, options, done } = scene()
  t.strictSame(await drain(listener, { ...options, lameDuckMs: 0, deadlineMs: 0 }), { drained: 0, cut: 2 })
  t.strictSame(done, ['close at 1000', 'close tunnels at 1000', 'cut 2 at 1000'])
})

t.test(
  'tunnels, which have no end of their own, are closed as soon as no request is under way',
  async (t) => {
    const { listener, options, done } = scene({ inFlight: 0 })
    t.strictSame(await drain(listener, options), { drained: 0, cut: 0 })
    t.strictSame(done, [
      'close at 6000',
      'close unused at 6000',
      'close tunnels at 6000',
      'close tunnels at 6050',
    ])
  },
)

t.test('a request that came later and was cut is not taken off those that were drained', async (t) => {
  const { listener, options } = scene({ inFlight: 1 })
  const later = { ...listener, inFlight: 0, cut: () => listener.cut() }
  t.strictSame(await drain(later, options), { drained: 0, cut: 1 })
})

t.test('sleep ends with its time or with what it waits for', async (t) => {
  await t.resolves(sleep(1, new Promise(() => {})))
  await t.resolves(sleep(60_000, Promise.resolve()))
})
