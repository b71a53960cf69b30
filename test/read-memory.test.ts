import t from 'tap'
import { READ_BYTES, ReadMemory } from '../src/read-memory.ts'

t.test('a block serves again once everybody who held it has let go', async (t) => {
  const memory = new ReadMemory()
  const block = memory.take()
  t.equal(block.bytes.length, READ_BYTES)
  t.notOk(block.held, 'by anybody but who took it')
  const first = block.hold()
  const second = block.hold()
  t.ok(block.held)
  block.release()
  first()
  t.not(memory.take(), block, 'one still holds it')
  second()
  t.equal(memory.take(), block)
})

t.test('a block that is taken again is held like a new one', async (t) => {
  const memory = new ReadMemory()
  memory.take().release()
  const block = memory.take()
  t.notOk(block.held)
  const written = block.hold()
  block.release()
  t.not(memory.take(), block)
  written()
  t.equal(memory.take(), block)
})

t.test('a few blocks are kept, however many were in use at once', async (t) => {
  const memory = new ReadMemory()
  const blocks = Array.from({ length: 100 }, () => memory.take())
  for (const block of blocks) block.release()
  const again = new Set(Array.from({ length: 100 }, () => memory.take()))
  t.equal(blocks.filter((block) => again.has(block)).length, 32)
})
