import t from 'tap'
import { createTokenCheck } from '../../src/gate/token-check.ts'
import type { Verdict, Verify } from '../../src/token/verdict.ts'

const passed: Verdict = {
  ok: true,
  identity: { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: 2_000_000_000 },
}
const refused: Verdict = { ok: false, reason: 'expired' }

/** A check that keeps what it was asked and what it counted. */
function watchedCheck(verify: Verify) {
  const asked: string[] = []
  const counted: string[] = []
  const check = createTokenCheck({
    verify: (token) => {
      asked.push(token)
      return verify(token)
    },
    onCheck: (reason) => counted.push(reason),
  })
  return { check, asked, counted }
}

t.test('without a bearer token nothing is verified, and the check is counted', async (t) => {
  const { check, asked, counted } = watchedCheck(() => passed)
  t.same(check(undefined), { ok: false, reason: 'missing' })
  t.same(check('Basic dXNlcg=='), { ok: false, reason: 'malformed' })
  t.same(check(''), { ok: false, reason: 'malformed' })
  t.same(asked, [])
  t.same(counted, ['missing', 'malformed', 'malformed'])
})

t.test('a remembered token is decided at once', async (t) => {
  const { check, asked, counted } = watchedCheck((token) => (token === 'good' ? passed : refused))
  t.equal(check('Bearer good'), passed)
  t.equal(check('bearer   old'), refused)
  t.same(asked, ['good', 'old'])
  t.same(counted, ['ok', 'expired'])
})

t.test('any other token is decided, and counted, when its verification is over', async (t) => {
  const { check, counted } = watchedCheck(async (token) => (token === 'good' ? passed : refused))
  const verdicts = [check('Bearer good'), check('Bearer bad')]
  t.ok(verdicts.every((verdict) => verdict instanceof Promise))
  t.same(counted, [])
  t.same(await Promise.all(verdicts), [passed, refused])
  t.same(counted, ['ok', 'expired'])
})

t.test('a fault of the verification is not taken for a verdict', async (t) => {
  const atOnce = () => {
    throw new Error('no entropy')
  }
  for (const verify of [async () => atOnce(), atOnce]) {
    const { check, counted } = watchedCheck(verify)
    await t.rejects(Promise.resolve(check('Bearer good')), { message: 'no entropy' })
    t.same(counted, [])
  }
})
