import fc from 'fast-check'
import t from 'tap'
import { Account } from '../../src/fair-use/account.ts'
import { FairUseLimits } from '../../src/fair-use/limits.ts'
import { Pacing } from '../../src/fair-use/pacing.ts'
import { usedHeap } from '../support/heap.ts'

const limitsOf = (written: Readonly<Record<string, number>>, processes = 1) => {
  const limits = new FairUseLimits({ default: written }, { processes, enforcement: 'enforce' }).of('acme')
  if (limits === undefined) {
    throw new Error('these are limits')
  }
  return limits
}

/** An account and the clock that it reads. */
function accountWith(written: Readonly<Record<string, number>>) {
  const clock = { nowMs: 1000 }
  const pacing = new Pacing(() => clock.nowMs)
  return { clock, pacing, account: new Account(limitsOf(written), pacing) }
}

/** A reader that counts how often it reads on. */
function countingReader() {
  const reader = {
    reads: 0,
    readOn() {
      reader.reads++
    },
  }
  return reader
}

t.test('as many requests are in flight as are allowed, and what is refused uses nothing', async (t) => {
  const check = (inFlight: number, steps: readonly ('begin' | 'end')[]): void => {
    const { account } = accountWith({ inFlight })
    let expected = 0
    for (const step of steps) {
      if (step === 'begin') {
        const limit = account.take(1000)?.limit
        t.equal(limit, expected >= inFlight ? 'in_flight' : undefined)
        expected = Math.min(expected + 1, inFlight)
      } else if (expected > 0) {
        account.onEnd()
        expected--
      }
    }
    t.equal(account.isQuiet(1000), expected === 0)
  }
  const steps = fc.array(fc.constantFrom('begin' as const, 'end' as const))
  fc.assert(fc.property(fc.integer({ min: 1, max: 5 }), steps, check))
})

t.test('an account is forgotten only once it has paid back what it used', async (t) => {
  const { account } = accountWith({ requestsPerSecond: 1 / 600, burst: 1 })
  t.ok(account.isQuiet(1000))
  t.equal(account.take(1000), undefined)
  account.onEnd()
  t.notOk(account.isQuiet(500_000), 'a limit below one request a minute')
  t.match(account.take(500_000), { limit: 'requests' })
  t.ok(account.isQuiet(601_000))
})

t.test('what an account owes is cut to a new burst, and is gone with the limit', async (t) => {
  const { account } = accountWith({ requestsPerSecond: 1 / 600, burst: 1 })
  account.take(1000)
  account.changeLimits(limitsOf({ requestsPerSecond: 100, burst: 1 }), 1000)
  t.match(account.take(1000), { limit: 'requests' })
  t.equal(account.take(1010), undefined)
  account.changeLimits(undefined, 1010)
  t.equal(account.take(1010), undefined)
  account.changeLimits(limitsOf({ inFlight: 3 }), 1010)
  t.match(account.take(1010), { limit: 'in_flight' }, 'requests in flight still count')
})

t.test('readers read on in the order in which they waited, as far as the credit is enough', async (t) => {
  const { account, clock, pacing } = accountWith({ downloadBytesPerSecond: 1_000_000 })
  t.teardown(() => pacing.stop())
  const readers = [countingReader(), countingReader(), countingReader()]
  account.onBytes('out', 500_000)
  for (const reader of readers) {
    t.notOk(account.mayRead('out', reader))
  }
  pacing.tick()
  const reads = () => readers.map((reader) => reader.reads)
  t.strictSame(reads(), [0, 0, 0], 'no credit')
  clock.nowMs += 100
  pacing.tick()
  t.strictSame(reads(), [1, 1, 0], '100 kB are two reads')
  t.ok(account.mayRead('in', countingReader()), 'the other direction has no limit')
  account.onReadEnd(readers[0] ?? countingReader())
  t.equal(Math.round(pacing.pacedSeconds.out * 1000), 100)
  clock.nowMs += 1000
  pacing.tick()
  t.strictSame(reads(), [1, 2, 1], 'one that has ended reads no more')
})

t.test('workers share each limit, and none has less than one request', async (t) => {
  t.match(limitsOf({ requestsPerSecond: 100, burst: 40, inFlight: 7, uploadBytesPerSecond: 4000 }, 4), {
    requests: { msPerUnit: 40, burst: 10 },
    inFlight: 1,
    upload: { msPerUnit: 1 },
    policy: '"requests";q=40;w=1, "in-flight";q=7;qu="concurrent-requests"',
  })
  t.match(limitsOf({ requestsPerSecond: 1, inFlight: 1 }, 8), { requests: { burst: 1 }, inFlight: 1 })
})

t.test('an account takes at most 200 bytes', async (t) => {
  const pacing = new Pacing(() => 1000)
  const limits = limitsOf({
    requestsPerSecond: 10,
    inFlight: 9,
    uploadBytesPerSecond: 9,
    downloadBytesPerSecond: 9,
  })
  const accounts = new Map<string, Account>()
  const count = 100_000
  const before = usedHeap()
  for (let index = 0; index < count; index++) {
    const account = new Account(limits, pacing)
    account.take(1000.5)
    account.onBytes('in', 1)
    account.onBytes('out', 1)
    accounts.set(JSON.parse(`"account-${index}"`), account) // a string of its own, as in the claims of a token
  }
  const bytes = (usedHeap() - before) / count
  t.ok(bytes <= 200, `${bytes} bytes`)
  t.equal(accounts.size, count)
})
