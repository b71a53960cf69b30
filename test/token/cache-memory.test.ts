import t from 'tap'
import { withCache } from '../../src/token/cache.ts'
import type { LastToken } from '../../src/token/verdict.ts'
import { keptMemory } from '../support/kept-memory.ts'

t.test(
  'a token that is remembered for its connection keeps nothing of the head that it came in',
  async (t) => {
    const refused = { ok: false, reason: 'signature' } as const
    const verify = withCache(() => refused, { maxTokens: 10, maxAgeSeconds: 10, now: () => 0 })
    const connections: LastToken[] = []
    const kept = keptMemory(() => {
      for (let n = 0; n < 1000; n++) {
        const last: LastToken = { token: '', digest: '' }
        connections.push(last)
        const head = Buffer.from(`Bearer token-of-connection-${n}${' '.repeat(30_000)}`).toString('latin1')
        verify(head.slice(7, 30), last)
      }
    })
    t.match(connections[999]?.token, /^token-of-connection/)
    t.ok(kept < 8 * 1024 * 1024, `${kept} bytes of heads of 30 MB`)
  },
)
