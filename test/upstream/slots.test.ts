import fc from 'fast-check'
import t from 'tap'
import { type SlotLimits, type SlotRequest, Slots } from '../../src/upstream/slots.ts'

type Event =
  | { readonly act: 'request'; readonly account: string | undefined; readonly isWebSocket: boolean }
  | { readonly act: 'giveBack' | 'remove' | 'retry'; readonly which: number }

const ACCOUNTS = ['a', 'b', 'c', undefined]

const event: fc.Arbitrary<Event> = fc.oneof(
  fc.record({
    act: fc.constant('request' as const),
    account: fc.constantFrom(...ACCOUNTS),
    isWebSocket: fc.boolean(),
  }),
  fc.record({ act: fc.constantFrom('giveBack', 'remove', 'retry'), which: fc.nat(50) }),
)

const limitsOf: fc.Arbitrary<SlotLimits> = fc.record({
  upstreamConnections: fc.integer({ min: 1, max: 6 }),
  upstreamQueue: fc.integer({ min: 1, max: 6 }),
  accountShare: fc.constantFrom(0.01, 0.34, 0.5, 1),
})

const countOf = (requests: readonly SlotRequest[], account: string | undefined) =>
  requests.filter((request) => request.account === account).length

t.test('slots are shared within their limits, whatever the order of events', async (t) => {
  const check = (limits: SlotLimits, events: readonly Event[]) => {
    const { upstreamConnections, upstreamQueue, accountShare } = limits
    const maxSlots = Math.max(1, Math.floor(upstreamConnections * accountShare))
    const maxWaiting = Math.max(1, Math.floor(upstreamQueue * accountShare))
    const slots = new Slots<SlotRequest>(limits)
    const holding: SlotRequest[] = []
    const waiting: SlotRequest[] = []
    let extra = 0

    const grantNext = () => {
      const next = slots.next()
      if (next === undefined) {
        return
      }
      const oldest = waiting.find(({ account }) => account === next.account)
      t.equal(next, oldest, 'the oldest request of its account')
      waiting.splice(waiting.indexOf(next), 1)
      holding.push(next)
    }

    for (const each of events) {
      if (each.act === 'request') {
        const { account, isWebSocket } = each
        const request = { account, isWebSocket, queuedMonotonicMs: 0 }
        const isFree = holding.length < upstreamConnections && countOf(holding, account) < maxSlots
        const mayWait =
          !isWebSocket && waiting.length < upstreamQueue && countOf(waiting, account) < maxWaiting
        const verdict = slots.request(request)
        if (isFree) {
          t.equal(verdict, 'granted')
          holding.push(request)
        } else if (mayWait) {
          t.equal(verdict, 'waiting')
          waiting.push(request)
        } else {
          t.equal(verdict, 'refused')
        }
      } else if (each.act === 'giveBack' && holding.length > 0) {
        const [request] = holding.splice(each.which % holding.length, 1)
        slots.giveBack(request?.account)
        grantNext()
      } else if (each.act === 'remove' && waiting.length > 0) {
        const [request] = waiting.splice(each.which % waiting.length, 1)
        t.equal(request !== undefined && slots.remove(request), true)
      } else if (each.act === 'retry' && holding.length > 0) {
        const request = holding[each.which % holding.length]
        if (request !== undefined) {
          slots.takeExtra(request.account)
          holding.push(request)
          extra++
        }
      }
      t.equal(slots.waiting, waiting.length)
      t.ok(holding.length <= upstreamConnections + extra)
      // No request waits beside a free slot that it may use.
      const isStuck = waiting.some(({ account }) => countOf(holding, account) < maxSlots)
      t.notOk(isStuck && holding.length < upstreamConnections)
    }
  }
  fc.assert(fc.property(limitsOf, fc.array(event, { maxLength: 60 }), check), { numRuns: 300 })
})

t.test('accounts that wait receive slots in turn', async (t) => {
  const slots = new Slots<SlotRequest & { readonly name: string }>({
    upstreamConnections: 2,
    upstreamQueue: 100,
    accountShare: 0.5,
  })
  const request = (name: string) =>
    slots.request({ name, account: name.slice(0, 1), isWebSocket: false, queuedMonotonicMs: 0 })
  t.equal(request('x0'), 'granted')
  t.equal(request('y0'), 'granted')
  for (const name of ['a1', 'a2', 'a3', 'b1', 'c1']) {
    t.equal(request(name), 'waiting')
  }
  const order: string[] = []
  let holder = 'x'
  for (let turn = 0; turn < 5; turn++) {
    slots.giveBack(holder)
    const next = slots.next()
    order.push(next?.name ?? 'none')
    holder = next?.account ?? ''
  }
  t.same(order, ['a1', 'b1', 'c1', 'a2', 'a3'])
})
