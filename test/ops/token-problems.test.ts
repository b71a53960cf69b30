import t from 'tap'
import type { AccessFailure } from '../../src/base/errors.ts'
import { statusSetup } from '../support/status-setup.ts'

type Checks = Readonly<Partial<Record<'ok' | AccessFailure, number>>>

/**
 * The critical problems after eight minutes of accepted tokens,
 * and one of `checks` in each step of five seconds.
 */
async function problemsAfter(checks: Checks, before: Checks = { ok: 10 }): Promise<string[]> {
  const { metrics, samples, step, report } = statusSetup()
  const count = (kind: Checks) => {
    for (const [reason, times] of Object.entries(kind)) {
      for (let at = 0; at < times; at++) {
        metrics.onTokenCheck(reason as 'ok' | AccessFailure)
      }
    }
  }
  await samples.sample()
  for (let at = 0; at < 108; at++) {
    count(at < 96 ? before : checks)
    await step()
  }
  const { problems } = await report()
  return problems.filter(({ severity }) => severity === 'critical').map(({ text }) => text)
}

t.test('refusals of tokens that were good are a problem from 5 % on', async (t) => {
  t.strictSame(await problemsAfter({ revoked: 10 }), ['Every token is refused: 60 revoked in 30 s'])
  t.strictSame(await problemsAfter({ ok: 30, claims: 10, expired: 20 }), [
    '50 % of the tokens are refused: 120 expired, 60 claims in 30 s',
  ])
  t.strictSame(await problemsAfter({ ok: 1000, expired: 10 }), [], 'one per cent')
  t.strictSame(await problemsAfter({ ok: 10, expired: 1 }), [], 'one client')
})

t.test('tokens of other keys are a problem only in the place of accepted ones', async (t) => {
  t.strictSame(await problemsAfter({ unknown_key: 10 }), [
    'Tokens that were accepted before are refused: 60 unknown_key in 30 s',
  ])
  t.strictSame(await problemsAfter({ ok: 10, unknown_key: 1000, signature: 1000 }), [], 'a flood beside them')
  t.strictSame(await problemsAfter({ unknown_key: 1000 }, {}), [], 'a flood at an idle sidecar')
  t.strictSame(await problemsAfter({ missing: 1000, malformed: 1000 }), [], 'no tokens at all')
})
