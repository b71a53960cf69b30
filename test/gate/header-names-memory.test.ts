import t from 'tap'
import { headerKind } from '../../src/gate/header-names.ts'
import { keptMemory } from '../support/kept-memory.ts'
import { readRequests } from '../support/request-reading.ts'

t.test('names that are remembered keep nothing of the heads that they came in', async (t) => {
  const kept = keptMemory(() => {
    for (let n = 0; n < 2048; n++) {
      const bytes = `GET / HTTP/1.1\r\nX-Some-Long-Name-${n}: ${'a'.repeat(16_000)}\r\n\r\n`
      const [name = ''] = readRequests(bytes).requests[0]?.rawHeaders ?? []
      headerKind(name)
    }
  })
  t.ok(kept < 8 * 1024 * 1024, `${kept} bytes of heads of 32 MiB`)
})
