import t from 'tap'
import { createGate } from '../../src/gate/decide.ts'
import type { Verdict, Verify } from '../../src/token/verdict.ts'

const passed: Verdict = {
  ok: true,
  identity: { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: 2_000_000_000 },
}
const refused: Verdict = { ok: false, reason: 'expired' }

/** A gate that keeps what it was asked and what it counted. */
function watchedGate(verify: Verify) {
  const asked: string[] = []
  const counted: string[] = []
  const gate = createGate({
    verify: (token) => {
      asked.push(token)
      return verify(token)
    },
    onCheck: (reason) => counted.push(reason),
  })
  return { gate, asked, counted }
}

t.test('without a bearer token nothing is verified, and the check is counted', async (t) => {
  const { gate, asked, counted } = watchedGate(() => passed)
  t.same(gate(undefined), { ok: false, reason: 'missing' })
  t.same(gate('Basic dXNlcg=='), { ok: false, reason: 'malformed' })
  t.same(gate(''), { ok: false, reason: 'malformed' })
  t.same(asked, [])
  t.same(counted, ['missing', 'malformed', 'malformed'])
})

t.test('a remembered token is decided at once', async (t) => {
  const { gate, asked, counted } = watchedGate((token) => (token === 'good' ? passed : refused))
  t.equal(gate('Bearer good'), passed)
  t.equal(gate('bearer   old'), refused)
  t.same(asked, ['good', 'old'])
  t.same(counted, ['ok', 'expired'])
})

t.test('any other token is decided, and counted, when its verification is over', async (t) => {
  const { gate, counted } = watchedGate(async (token) => (token === 'good' ? passed : refused))
  const verdicts = [gate('Bearer good'), gate('Bearer bad')]
  t.ok(verdicts.every((verdict) => verdict instanceof Promise))
  t.same(counted, [])
  t.same(await Promise.all(verdicts), [passed, refused])
  t.same(counted, ['ok', 'expired'])
})

t.test('a fault of the verification is not taken for a verdict', async (t) => {
  const { gate, counted } = watchedGate(() => Promise.reject(new Error('no entropy')))
  await t.rejects(Promise.resolve(gate('Bearer good')), { message: 'no entropy' })
  t.same(counted, [])
})
