import t from 'tap'
import { HeaderKind, headerKind } from '../../src/http/headers.ts'

t.test('thousands of other names do not change how a name is classified', async (t) => {
  for (let n = 0; n < 5000; n++) headerKind(`X-Filler-${n}`)
  t.equal(headerKind('X_authenticated.UNSEEN_spelling'), HeaderKind.identity)
  t.equal(headerKind('content_LENGTH'), HeaderKind.refusedLookAlike)
  t.equal(headerKind('X-Unseen'), HeaderKind.other)
})

t.test('a name is classified in time linear in its length', async (t) => {
  for (const filler of ['-', '_', '-a', 'a', '-_']) {
    const name = `x${filler.repeat(30_000 / filler.length)}y`
    const before = process.cpuUsage()
    t.equal(headerKind(name), HeaderKind.other)
    const { user } = process.cpuUsage(before)
    t.ok(user < 20_000, `${user / 1000} ms for 30,000 characters of ${filler}`)
  }
})
