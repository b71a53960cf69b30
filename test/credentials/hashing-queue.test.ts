import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { HashingQueue } from '../../src/credentials/hashing-queue.ts'

/** A queue whose jobs end when the test says so. `order`: the names of the jobs that have begun. */
function setUp() {
  const clock = { ms: 1 }
  const queue = new HashingQueue(() => clock.ms)
  const order: string[] = []
  let endJob = () => {}
  const add = (network: string, name = network) =>
    queue.run(network, () => {
      order.push(name)
      return new Promise<string>((resolve) => {
        endJob = () => resolve(name)
      })
    })
  const endAll = async () => {
    let begun = 0
    while (begun < order.length) {
      begun = order.length
      endJob()
      await setImmediate()
    }
  }
  const fail = (network: string, times: number) => {
    for (let count = 0; count < times; count++) {
      queue.onLogin(network, 'rejected')
    }
  }
  return { clock, queue, order, add, endAll, fail }
}

t.test('one job runs at a time, and networks take turns', async (t) => {
  const { order, add, endAll } = setUp()
  const results = [
    add('a', 'a1'),
    add('a', 'a2'),
    add('a', 'a3'),
    add('b', 'b1'),
    add('c', 'c1'),
    add('b', 'b2'),
  ]
  t.same(order, ['a1'])
  await endAll()
  t.same(order, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2'])
  t.same(await Promise.all(results), ['a1', 'a2', 'a3', 'b1', 'c1', 'b2'])
})

t.test(
  'networks that logged in within the hour go first, and those with over 100 failures last',
  async (t) => {
    const { clock, queue, order, add, endAll, fail } = setUp()
    queue.onLogin('former', 'accepted')
    clock.ms += 3_600_000
    queue.onLogin('known', 'accepted')
    queue.onLogin('guesses', 'accepted')
    fail('guesses', 101)
    fail('errs', 100)
    add('first')
    for (const network of ['guesses', 'former', 'errs', 'known']) {
      add(network)
    }
    await endAll()
    t.same(order, ['first', 'known', 'former', 'errs', 'guesses'])
    clock.ms += 60_000
    add('first')
    add('errs', 'errs again')
    add('guesses', 'guesses again')
    await endAll()
    t.same(order.slice(-2), ['guesses again', 'errs again'], 'a minute later')
  },
)

t.test('a network has a quarter of the places, and a full queue makes room for others', async (t) => {
  const { queue, order, add, endAll, fail } = setUp()
  add('running')
  const results = ['a', 'b', 'c', 'd'].map((network) => Array.from({ length: 9 }, () => add(network)))
  for (const ofNetwork of results) {
    t.equal(await Promise.race([ofNetwork[8], setImmediate('waits')]), 'busy')
    t.equal(await Promise.race([ofNetwork[7], setImmediate('waits')]), 'waits')
  }
  const newcomer = add('e')
  t.equal(await results[0]?.[7], 'busy', 'it takes the place of a network that waits with many jobs')
  queue.onLogin('known', 'accepted')
  const known = Array.from({ length: 9 }, () => add('known'))
  t.equal(await known[8], 'busy')
  fail('failing', 101)
  t.equal(await add('failing'), 'busy', 'drops none of a higher standing')
  await endAll()
  t.equal(await newcomer, 'e')
  t.same(order.slice(1, 9), Array(8).fill('known'))
  t.equal(order.length, 33)
})

t.test('a job that rejects lets the next one run', async (t) => {
  const queue = new HashingQueue()
  const failing = queue.run('a', async () => {
    throw new Error('no memory')
  })
  const next = queue.run('a', async () => 'done')
  await t.rejects(failing, { message: 'no memory' })
  t.equal(await next, 'done')
})
