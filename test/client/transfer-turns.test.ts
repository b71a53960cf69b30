import t from 'tap'
import { TransferTurns } from '../../src/client/transfer-turns.ts'

const MIB = 1024 * 1024
const nextTurn = () => new Promise(setImmediate)

t.test('once a MiB has moved in a turn, readers wait for the next one', async (t) => {
  const turns = new TransferTurns()
  const resumed: string[] = []
  const reader = (name: string) => ({ readOn: () => resumed.push(name) })
  turns.onBytes(MIB - 1)
  t.ok(turns.mayRead(reader('early'), MIB))
  turns.onBytes(1)
  t.notOk(turns.mayRead(reader('first'), MIB))
  t.notOk(turns.mayRead(reader('second'), MIB))
  t.ok(turns.mayRead(reader('small'), 32 * 1024), 'a small transfer does not wait')
  t.same(resumed, [])
  await nextTurn()
  t.same(resumed, ['first', 'second'])
  t.ok(turns.mayRead(reader('third'), MIB), 'a new turn')
})

t.test('16 readers read on in each turn, the one that has waited longest first', async (t) => {
  const turns = new TransferTurns()
  const resumed: number[] = []
  const readers = Array.from({ length: 80 }, (_, at) => ({ readOn: () => resumed.push(at) }))
  turns.onBytes(MIB)
  for (const reader of readers) {
    turns.mayRead(reader, MIB)
  }
  for (const reader of readers.slice(0, 8)) {
    turns.onReadEnd(reader)
  }
  const counts: number[] = []
  while (resumed.length < 72) {
    await nextTurn()
    counts.push(resumed.length)
  }
  t.same(
    counts.filter((count) => count > 0),
    [16, 32, 48, 64, 72],
  )
  t.same(resumed, readers.map((_, at) => at).slice(8), 'without those that have ended')
})
