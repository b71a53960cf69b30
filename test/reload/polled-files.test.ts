import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loaded, notLoaded } from '../../src/base/result.ts'
import { openPolledFiles } from '../../src/reload/polled-files.ts'

/** How the next loads of the file end. `movesOn`: well, but the file changes meanwhile. */
type Loads = 'well' | 'badly' | 'movesOn'

/** What a poll led to. `tried`: the file was loaded, and neither activated nor rejected. */
type Outcome = 'nothing' | 'tried' | 'activated' | 'rejected'

/** Polls take place when a test asks for them. The clock moves on by 200 ms before each. */
interface FileUnderTest {
  put(version: string, loads?: Loads): void
  poll(): Promise<Outcome>
  pollTimes(count: number): Promise<Outcome[]>
  /** Polls each version once, as of a file that is written between all polls. */
  pollEach(versions: readonly string[], loads?: Loads): Promise<Outcome[]>
  /** What an operator does by SIGHUP. */
  reload(): Promise<Outcome>
  /** Begins to poll by timers. Returns their delays, which never pass. */
  startTimers(): number[]
}

/** Opens a file whose version `a` is active. */
async function openFile(t: Test, logInfo = () => {}): Promise<FileUnderTest> {
  const link = join(t.testdir(), 'link')
  let version = ''
  let loads: Loads = 'well'
  let outcome: Outcome = 'nothing'
  let monotonicMs = 0
  const put = (next: string, loadsNext: Loads = 'well') => {
    version = next
    loads = loadsNext
    rmSync(link, { force: true })
    writeFileSync(join(t.testdirName, next), '', { flag: 'a' })
    symlinkSync(next, link)
  }
  put('a')
  const opened = await openPolledFiles({
    subject: 'list',
    paths: [link],
    async load() {
      outcome = 'tried'
      if (loads === 'movesOn') {
        writeFileSync(link, 'moved')
      }
      return loads === 'badly' ? notLoaded([{ path: 'list', message: 'bad' }]) : loaded(version)
    },
    onReload(result) {
      if (result === 'failed') {
        outcome = 'rejected'
      }
    },
    log: { info: logInfo, warn() {}, error() {} },
  })
  if (!opened.ok) {
    throw new Error('not opened')
  }
  const file = opened.value
  t.teardown(() => file.stop())
  file.subscribe(() => {
    outcome = 'activated'
  })
  t.capture(performance, 'now', () => monotonicMs)

  async function outcomeOf(poll: () => Promise<unknown>): Promise<Outcome> {
    monotonicMs += 200
    outcome = 'nothing'
    await poll()
    return outcome
  }
  const poll = () => outcomeOf(file.refresh.bind(file))
  async function pollTimes(count: number): Promise<Outcome[]> {
    const outcomes: Outcome[] = []
    while (outcomes.length < count) {
      outcomes.push(await poll())
    }
    return outcomes
  }
  async function pollEach(versions: readonly string[], loadsEach?: Loads): Promise<Outcome[]> {
    const outcomes: Outcome[] = []
    for (const next of versions) {
      put(next, loadsEach)
      outcomes.push(await poll())
    }
    return outcomes
  }
  function startTimers(): number[] {
    const delaysMs: number[] = []
    const setTimeout = (_poll: () => void, delayMs: number) => {
      delaysMs.push(delayMs)
      return { unref() {} }
    }
    t.intercept(globalThis, 'setTimeout', { value: setTimeout })
    file.start()
    return delaysMs
  }
  return { put, poll, pollTimes, pollEach, reload: () => outcomeOf(file.reload.bind(file)), startTimers }
}

/** Opens a file whose next version has been rejected. */
async function openRejected(t: Test): Promise<FileUnderTest> {
  const file = await openFile(t)
  file.put('b', 'badly')
  t.same(await file.pollTimes(5), ['nothing', 'tried', 'nothing', 'nothing', 'rejected'])
  return file
}

const repeated = (outcome: Outcome, count: number) => Array<Outcome>(count).fill(outcome)
const manyVersions = (count: number) => Array.from({ length: count }, (_, index) => `v${index}`)
const eachTwice = (versions: readonly string[]) => versions.flatMap((version) => [version, version])

t.test('an unchanged version is left alone', async (t) => {
  const file = await openFile(t)
  t.same(await file.pollTimes(9), repeated('nothing', 9))
})

t.test('a good version becomes active once two polls found it', async (t) => {
  const file = await openFile(t)
  file.put('b')
  t.same(await file.pollTimes(3), ['nothing', 'activated', 'nothing'])
})

t.test('a change is active 0.8 s after it at most', async (t) => {
  const file = await openFile(t)
  const delaysMs = file.startTimers()
  file.put('b')
  t.same(await file.pollTimes(2), ['nothing', 'activated'])
  const [untilFound = 0, untilStable = 0] = delaysMs
  t.ok(untilFound + untilStable <= 800, `${delaysMs}`)
})

t.test('a file is watched from the second poll on, and polled each 10 s', async (t) => {
  const file = await openFile(t)
  const delaysMs = file.startTimers()
  await file.pollTimes(2)
  const [first = 0, second = 0, watched = 0] = delaysMs
  t.ok(first <= 500 && second <= 500, `${delaysMs}`)
  t.ok(watched > 9000, `${delaysMs}`)
})

t.test('the return of the active version is no change', async (t) => {
  const file = await openFile(t)
  t.same(await file.pollEach(['b', 'a', 'a']), repeated('nothing', 3))
})

t.test('but after a rejection it is', async (t) => {
  const file = await openRejected(t)
  file.put('a')
  t.same(await file.pollTimes(2), ['nothing', 'activated'])
})

t.test('the second file of a pair follows in time', async (t) => {
  const file = await openFile(t)
  file.put('certificate without its key', 'badly')
  t.same(await file.pollTimes(2), ['nothing', 'tried'])
  file.put('pair')
  t.same(await file.pollTimes(2), ['nothing', 'activated'])
})

t.test('a version that changed while it was read is read again', async (t) => {
  const file = await openFile(t)
  file.put('b', 'movesOn')
  t.equal(await file.poll(), 'nothing')
  file.put('b', 'movesOn')
  t.equal(await file.poll(), 'tried')
  file.put('b')
  t.same(await file.pollTimes(2), ['nothing', 'activated'])
})

t.test('a version that changes with each poll is activated after 50 of them', async (t) => {
  const file = await openFile(t)
  const outcomes = await file.pollEach(manyVersions(51))
  t.same(outcomes, [...repeated('nothing', 49), 'activated', 'nothing'])
})

t.test('so is one that also changes while it is read', async (t) => {
  const file = await openFile(t)
  const outcomes = await file.pollEach(manyVersions(51), 'movesOn')
  t.same(outcomes, [...repeated('nothing', 49), 'activated', 'nothing'])
})

t.test('and a bad one is rejected', async (t) => {
  const file = await openFile(t)
  const outcomes = await file.pollEach(manyVersions(51), 'badly')
  t.same(outcomes, [...repeated('nothing', 49), 'rejected', 'nothing'])
})

t.test('a bad version that changes with every second poll is rejected after 50 of them', async (t) => {
  const file = await openFile(t)
  const outcomes = await file.pollEach(eachTwice(manyVersions(25)), 'badly')
  const firstPolls = outcomes.filter((_, index) => index % 2 === 0)
  const secondPolls = outcomes.filter((_, index) => index % 2 === 1)
  t.same(firstPolls, repeated('nothing', 25))
  t.same(secondPolls, [...repeated('tried', 24), 'rejected'])
})

t.test('a good one is activated with every second poll', async (t) => {
  const file = await openFile(t)
  t.same(await file.pollEach(['b']), ['nothing'])
  const outcomes = await file.pollEach(eachTwice(manyVersions(27)))
  const firstPolls = outcomes.filter((_, index) => index % 2 === 0)
  const secondPolls = outcomes.filter((_, index) => index % 2 === 1)
  t.same(firstPolls, repeated('nothing', 27))
  t.same(secondPolls, repeated('activated', 27))
})

t.test('a rejected version is tried again after 5 s', async (t) => {
  const file = await openRejected(t)
  t.same(await file.pollTimes(26), [...repeated('nothing', 24), 'tried', 'nothing'])
})

t.test('and activated if it loads', async (t) => {
  const file = await openRejected(t)
  t.same(await file.pollTimes(24), repeated('nothing', 24))
  file.put('b')
  t.same(await file.pollTimes(2), ['activated', 'nothing'])
})

t.test('unless it changes meanwhile', async (t) => {
  const file = await openRejected(t)
  t.same(await file.pollTimes(24), repeated('nothing', 24))
  file.put('b', 'movesOn')
  t.equal(await file.poll(), 'tried')
})

t.test('a rejected version that returns after another one is loaded without a pause', async (t) => {
  const file = await openFile(t)
  file.put('b', 'badly')
  t.equal(await file.reload(), 'rejected')
  t.same(await file.pollEach(['c', 'b', 'b', 'b', 'b', 'b']), [
    'nothing',
    'nothing',
    'activated',
    ...repeated('nothing', 3),
  ])
})

t.test('a forced load reports each time', async (t) => {
  const file = await openFile(t)
  file.put('a', 'badly')
  t.equal(await file.reload(), 'rejected')
  t.equal(await file.reload(), 'rejected')
  file.put('a')
  t.equal(await file.reload(), 'activated')
  t.equal(await file.poll(), 'nothing')
})

t.test('a forced load decides about a version that has not settled', async (t) => {
  const file = await openFile(t)
  file.put('b')
  t.equal(await file.poll(), 'nothing')
  file.put('b', 'movesOn')
  t.equal(await file.reload(), 'activated')
  file.put('c')
  t.equal(await file.poll(), 'nothing')
  t.equal(await file.reload(), 'activated')
  t.equal(await file.poll(), 'nothing')
})

t.test('subscribers act on a new version of files though its log line cannot be written', async (t) => {
  const file = await openFile(t, () => {
    throw new Error('no log')
  })
  file.put('b')
  t.equal(await file.reload(), 'activated')
  t.equal(await file.poll(), 'nothing')
})
