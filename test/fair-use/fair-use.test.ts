/** Many accounts, at the room itself: a test over sockets would sign and verify a token for each. */
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { openFairUse } from '../../src/fair-use/fair-use.ts'
import type { RequestWatcher } from '../../src/room.ts'
import { usedHeap } from '../support/heap.ts'
import { limitsFile } from '../support/limited-setup.ts'

const ACCOUNTS_PER_SECOND = 2000
const BYTES_PER_ACCOUNT = 200

/** The room, with a clock that the test sets. */
async function setup(t: Test, limits: string) {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const clock = { ms: 1000 }
  const opened = await openFairUse({
    config: {
      fairUse: { file: await limitsFile(t, limits), enforcement: 'enforce', refusedStatus: 429 },
      trustedIssuers: [],
      workers: 1,
    },
    log: { info() {}, warn() {}, error() {} },
    hasCredentials: () => true,
    onReload() {},
    monotonicNow: () => clock.ms,
  })
  if (!opened.ok) {
    throw new Error(JSON.stringify(opened.problems))
  }
  const room = opened.value
  t.teardown(() => room.stop())
  return {
    /** Sends a request of the account, which ends at once. Returns whether it passes. */
    passes(accountId: string): boolean {
      const identity = { accountId, accessKey: 'k', tokenId: 't', issuedAtSeconds: 0, expiresAtSeconds: 1 }
      const caller = {
        identity,
        issuer: 'i',
        link: undefined,
        validUntilMs: 1,
        identityLines: '',
        assertions: undefined,
        recheckAtMs: 1,
      }
      const watchers: RequestWatcher[] = []
      const addWatcher = (watcher: RequestWatcher) => watchers.push(watcher)
      const refusal = room.review({ act: 'forward', caller, wouldRefuse: undefined }, { addWatcher })
      for (const watcher of watchers) {
        watcher.onEnd?.({ status: 200, reason: undefined, seconds: 0 })
      }
      return refusal === undefined
    },
    passSeconds(seconds: number): void {
      for (let second = 0; second < seconds; second++) {
        clock.ms += 1000
        mock.timers.tick(1000)
      }
    },
  }
}

t.test('20,000 accounts in ten seconds reset no limit, take 200 bytes each, and are forgotten', async (t) => {
  const { passes, passSeconds } = await setup(t, 'default: { requestsPerSecond: 0.05, burst: 1 }')
  t.ok(passes('loud'))
  const before = usedHeap()
  for (let second = 0; second < 10; second++) {
    for (let index = 0; index < ACCOUNTS_PER_SECOND; index++) {
      passes(JSON.parse(`"account-${second}-${index}"`)) // a string of its own, as in the claims of a token
    }
    t.notOk(passes('loud'), `after ${second} s`)
    passSeconds(1)
  }
  const accounts = 10 * ACCOUNTS_PER_SECOND
  const bytes = (usedHeap() - before) / accounts
  t.ok(bytes <= BYTES_PER_ACCOUNT, `${bytes} bytes for each account`)
  passSeconds(10)
  t.ok(passes('loud'), 'twenty seconds after its last request')
  passSeconds(10)
  const left = usedHeap() - before
  t.ok(left < (BYTES_PER_ACCOUNT * accounts) / 4, `${left} bytes are left once all are quiet`)
})

t.test('an account that comes back has the limit that it left', async (t) => {
  const { passes, passSeconds } = await setup(t, 'default: { requestsPerSecond: 0.01, burst: 2 }')
  t.ok(passes('acme'))
  t.ok(passes('acme'))
  passSeconds(99)
  t.notOk(passes('acme'))
  passSeconds(1)
  t.ok(passes('acme'))
  t.notOk(passes('acme'))
  passSeconds(200)
  t.ok(passes('acme'))
  t.ok(passes('acme'))
  t.notOk(passes('acme'), 'forgotten with a full burst, not with more')
})
