import fc from 'fast-check'
import t, { type Test } from 'tap'
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

/** What must be true of `Slots`: which requests hold a slot, and which wait. */
class SlotsModel {
  readonly #t: Test
  readonly #limits: SlotLimits
  readonly #slots: Slots<SlotRequest>
  readonly #holding: SlotRequest[] = []
  readonly #waiting: SlotRequest[] = []
  /** Slots above the limit, for requests that are sent a second time. */
  #extra = 0

  constructor(t: Test, limits: SlotLimits) {
    this.#t = t
    this.#limits = limits
    this.#slots = new Slots<SlotRequest>(limits)
  }

  request(account: string | undefined, isWebSocket: boolean): void {
    const request = { account, isWebSocket, queuedMonotonicMs: 0 }
    const expected = this.#expectedFor(request)
    this.#t.equal(this.#slots.request(request), expected)
    if (expected === 'granted') {
      this.#holding.push(request)
    } else if (expected === 'waiting') {
      this.#waiting.push(request)
    }
  }

  #expectedFor({ account, isWebSocket }: SlotRequest): 'granted' | 'waiting' | 'refused' {
    const { upstreamConnections, upstreamQueue, accountShare } = this.#limits
    const hasSlot = this.#holding.length < upstreamConnections && this.#mayHold(account)
    if (hasSlot) {
      return 'granted'
    }
    const maxWaiting = Math.max(1, Math.floor(upstreamQueue * accountShare))
    const hasPlace = this.#waiting.length < upstreamQueue && countOf(this.#waiting, account) < maxWaiting
    return hasPlace && !isWebSocket ? 'waiting' : 'refused'
  }

  #mayHold(account: string | undefined): boolean {
    const { upstreamConnections, accountShare } = this.#limits
    const maxSlots = Math.max(1, Math.floor(upstreamConnections * accountShare))
    return countOf(this.#holding, account) < maxSlots
  }

  giveBack(which: number): void {
    const request = takeOne(this.#holding, which)
    if (request === undefined) {
      return
    }
    this.#slots.giveBack(request.account)
    const next = this.#slots.next()
    if (next !== undefined) {
      const oldest = this.#waiting.find(({ account }) => account === next.account)
      this.#t.equal(next, oldest, 'the oldest request of its account')
      this.#waiting.splice(this.#waiting.indexOf(next), 1)
      this.#holding.push(next)
    }
  }

  remove(which: number): void {
    const request = takeOne(this.#waiting, which)
    if (request !== undefined) {
      this.#t.equal(this.#slots.remove(request), true)
    }
  }

  retry(which: number): void {
    const request = this.#holding[which % Math.max(1, this.#holding.length)]
    if (request !== undefined) {
      this.#slots.takeExtra(request.account)
      this.#holding.push(request)
      this.#extra++
    }
  }

  check(): void {
    const { upstreamConnections } = this.#limits
    this.#t.equal(this.#slots.waiting, this.#waiting.length)
    this.#t.ok(this.#holding.length <= upstreamConnections + this.#extra)
    const mayStart = this.#waiting.some(({ account }) => this.#mayHold(account))
    const isFree = this.#holding.length < upstreamConnections
    this.#t.notOk(mayStart && isFree, 'no request waits beside a free slot that it may use')
  }
}

function takeOne(requests: SlotRequest[], which: number): SlotRequest | undefined {
  return requests.length === 0 ? undefined : requests.splice(which % requests.length, 1)[0]
}

t.test('slots are shared within their limits, whatever the order of events', async (t) => {
  const check = (limits: SlotLimits, events: readonly Event[]) => {
    const model = new SlotsModel(t, limits)
    for (const each of events) {
      if (each.act === 'request') {
        model.request(each.account, each.isWebSocket)
      } else {
        model[each.act](each.which)
      }
      model.check()
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
