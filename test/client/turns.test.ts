import t from 'tap'
import { type Priority, Turns } from '../../src/client/turns.ts'

function startTurns() {
  const turns = new Turns()
  const begun: Priority[] = []
  const add = (count: number, priority: Priority) => {
    for (let at = 0; at < count; at++) {
      turns.run(() => begun.push(priority), priority)
    }
  }
  const count = (priority: Priority) => begun.filter((one) => one === priority).length
  return { turns, begun, add, count }
}

const nextTurn = () => new Promise(setImmediate)

t.test('64 requests begin at once, the others in turns of 16', async (t) => {
  const { begun, add } = startTurns()
  add(100, 'normal')
  t.equal(begun.length, 64)
  const perTurn: number[] = []
  while (begun.length < 100) {
    const before = begun.length
    await nextTurn()
    perTurn.push(begun.length - before)
  }
  t.same(
    perTurn.filter((some) => some > 0),
    [16, 16, 4],
  )
  await nextTurn()
  await nextTurn()
  add(1, 'normal')
  t.equal(begun.length, 101, 'again at once')
})

t.test('clients that were refused wait longer than others, but not for ever', async (t) => {
  const { add, count } = startTurns()
  add(64, 'normal')
  add(200, 'low')
  add(120, 'normal')
  while (count('normal') < 64 + 120) {
    await nextTurn()
  }
  t.equal(count('low'), 40, 'four beside twelve')
  while (count('low') < 200) {
    await nextTurn()
  }
})

t.test('turns that accept a connection are shorter, so that the next one is accepted soon', async (t) => {
  const { turns, begun, add } = startTurns()
  add(64, 'normal')
  add(100, 'normal')
  add(100, 'low')
  turns.onAccepted()
  await nextTurn()
  t.same(begun.slice(64), ['normal', 'normal', 'normal', 'low'])
  await nextTurn()
  t.equal(begun.length, 64 + 4 + 16, 'no other connection was accepted')
})

t.test('what has waited unread goes before what waits, but not beyond the 64 of a turn', async (t) => {
  const turns = new Turns()
  const begun: string[] = []
  const run = (name: string, hasWaited: boolean) => turns.run(() => begun.push(name), 'normal', hasWaited)
  for (let at = 0; at < 70; at++) {
    run('first', false)
  }
  run('unread', true)
  t.notOk(begun.includes('unread'), 'the turn is full')
  await nextTurn()
  t.equal(begun.length, 70 + 1, 'those that waited')
  for (let at = 0; at < 64; at++) {
    run('second', false)
  }
  run('waits', false)
  t.notOk(begun.includes('waits'))
  await nextTurn()
  run('also unread', true)
  t.ok(begun.includes('also unread'), 'at once')
})

t.test('clients are left unread once 512 wait', (t) => {
  const { turns, add } = startTurns()
  add(64 + 511, 'normal')
  t.notOk(turns.isCrowded)
  add(1, 'low')
  t.ok(turns.isCrowded)
  t.end()
})
