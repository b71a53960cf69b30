import fc from 'fast-check'
import t from 'tap'
import { changeRate, creditOf, type Rate, use, waitMs } from '../../src/fair-use/rate.ts'

/**
 * A bucket of tokens, filled a step of time at a time: slow, and plain to see. Times are whole milliseconds.
 */
class SlowBucket {
  #tokens: number
  #atMs: number
  #rate: Rate

  constructor(rate: Rate, nowMs: number) {
    this.#rate = rate
    this.#tokens = rate.burst
    this.#atMs = nowMs
  }

  tokensAt(nowMs: number): number {
    while (this.#atMs < nowMs) {
      this.#atMs++
      this.#tokens = Math.min(this.#rate.burst, this.#tokens + 1 / this.#rate.msPerUnit)
    }
    return this.#tokens
  }

  take(units: number, nowMs: number): void {
    this.#tokens = this.tokensAt(nowMs) - units
  }

  changeRate(rate: Rate, nowMs: number): void {
    const owed = Math.min(rate.burst, this.#rate.burst - this.tokensAt(nowMs))
    this.#rate = rate
    this.#tokens = rate.burst - owed
  }
}

/** A millisecond is more of a unit than what `waitMs` rounds away. */
const rates = fc.record({
  msPerUnit: fc.integer({ min: 1, max: 900 }),
  burst: fc.integer({ min: 1, max: 50 }),
})
const pauses = fc.integer({ min: 0, max: 1500 })
/** Sums of binary fractions may differ by this. */
const TOLERANCE = 1e-6

t.test('requests pass exactly when a bucket has a token, whatever the pauses', async (t) => {
  const property = fc.property(rates, fc.array(pauses, { maxLength: 100 }), (rate, steps) => {
    let nowMs = 1_000_000
    let fullAtMs = 0
    const bucket = new SlowBucket(rate, nowMs)
    for (const pause of steps) {
      nowMs += pause
      const isAllowed = waitMs(rate, fullAtMs, nowMs) === 0
      if (isAllowed !== bucket.tokensAt(nowMs) >= 1 - TOLERANCE) {
        return false
      }
      if (isAllowed) {
        fullAtMs = use(rate, fullAtMs, 1, nowMs)
        bucket.take(1, nowMs)
      }
    }
    return true
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 300 }))
})

t.test('the wait is as long as it says, and not longer', async (t) => {
  const property = fc.property(rates, fc.integer({ min: 1, max: 100 }), (rate, units) => {
    const fullAtMs = use(rate, 0, units, 5000)
    const wait = waitMs(rate, fullAtMs, 5000)
    const isOver = waitMs(rate, fullAtMs, 5000 + wait) < TOLERANCE
    const isNotOverBefore = wait === 0 || waitMs(rate, fullAtMs, 5000 + wait - rate.msPerUnit * 0.01) > 0
    return isOver && isNotOverBefore
  })
  t.doesNotThrow(() => fc.assert(property))
})

t.test(
  'the credit of bytes is that of a bucket which may go below zero, also when its rate changes',
  async (t) => {
    const use1 = fc.record({
      pause: pauses,
      units: fc.integer({ min: 0, max: 200 }),
      change: fc.option(rates),
    })
    const property = fc.property(rates, fc.array(use1, { maxLength: 50 }), (first, steps) => {
      let rate: Rate = first
      let nowMs = 1_000_000
      let fullAtMs = 0
      const bucket = new SlowBucket(rate, nowMs)
      for (const { pause, units, change } of steps) {
        nowMs += pause
        if (change !== null) {
          bucket.changeRate(change, nowMs)
          fullAtMs = changeRate(rate, change, fullAtMs, nowMs)
          rate = change
        }
        bucket.take(units, nowMs)
        fullAtMs = use(rate, fullAtMs, units, nowMs)
        if (Math.abs(creditOf(rate, fullAtMs, nowMs) - bucket.tokensAt(nowMs)) > 0.001) {
          return false
        }
      }
      return true
    })
    t.doesNotThrow(() => fc.assert(property, { numRuns: 300 }))
  },
)

t.test(
  'over any ten seconds, bytes exceed their rate by no more than half a second of it and the last read',
  async (t) => {
    const rate = { msPerUnit: 0.01, burst: 50_000 }
    let fullAtMs = 0
    let bytes = 0
    for (let nowMs = 0; nowMs < 10_000; nowMs += 5) {
      while (creditOf(rate, fullAtMs, nowMs) > 0) {
        fullAtMs = use(rate, fullAtMs, 65_536, nowMs)
        bytes += 65_536
      }
    }
    t.ok(bytes <= 10 * 100_000 + 50_000 + 65_536, `${bytes}`)
    t.ok(bytes >= 10 * 100_000, 'and are not less')
  },
)
