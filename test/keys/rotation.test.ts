import t from 'tap'
import { activateKey, addKey, retireKey } from '../../src/keys/key-changes.ts'
import type { KeyRing } from '../../src/keys/key-ring.ts'
import { withCache } from '../../src/token/cache.ts'
import { createIssuer } from '../../src/token/issue.ts'
import { createVerifier } from '../../src/token/verify.ts'
import { ringOf } from '../support/keys.ts'
import { AUDIENCE, ISSUER } from '../support/tokens.ts'

const LIFETIME = 600
const SUBJECT = { accountId: 'acme', accessKey: 'AK' }

/** Two sidecars over one key directory, each of which reads it when it is told to. */
async function twoSidecars(directory: string) {
  const clock = { ms: Date.UTC(2026, 10, 20, 12) }
  const now = () => clock.ms
  const change = { directory, now }
  await addKey({ ...change, alg: 'ES256', kid: 'old' })
  const start = await ringOf(directory)
  const sidecar = () => {
    const it = { ring: start }
    const keys = (): KeyRing => it.ring
    const rules = { issuer: ISSUER, audience: AUDIENCE, now }
    const issue = createIssuer({ ...rules, keys, lifetimeSeconds: LIFETIME })
    const limits = { maxLifetimeSeconds: LIFETIME, clockToleranceSeconds: 0 }
    const verify = withCache(createVerifier({ ...rules, ...limits, keys }), {
      maxTokens: 10_000,
      maxAgeSeconds: 300,
      now,
    })
    const reload = async () => {
      it.ring = await ringOf(directory)
      verify.clear()
    }
    return { issue, verify, reload }
  }
  const sidecars = [sidecar(), sidecar()] as const
  const tokens: { token: string; expiresAt: number }[] = []
  const count = { checks: 0, refusals: 0 }

  /** Both issue tokens for some time, and both check every token that is alive. */
  async function traffic(seconds: number) {
    for (const end = clock.ms + seconds * 1000; clock.ms < end; clock.ms += 50_000) {
      for (const { issue } of sidecars) {
        const { token, identity } = await issue(SUBJECT)
        tokens.push({ token, expiresAt: identity.expiresAt })
      }
      const alive = tokens.filter(({ expiresAt }) => expiresAt * 1000 > clock.ms)
      for (const { verify } of sidecars) {
        for (const { token } of alive) {
          count.checks++
          if (!(await verify(token)).ok) count.refusals++
        }
      }
    }
  }
  return { change, clock, sidecars, traffic, count }
}

for (const order of [
  [0, 1],
  [1, 0],
] as const) {
  t.test(`no live token is refused in a whole rotation when sidecar ${order[0]} reads first`, async (t) => {
    const { change, sidecars, traffic, count } = await twoSidecars(t.testdir({}))
    /** Traffic goes on before the first sidecar, between the two and after both have read the change. */
    const spread = async () => {
      await traffic(100)
      for (const which of order) {
        await sidecars[which].reload()
        await traffic(100)
      }
    }
    await spread()
    t.match(await addKey({ ...change, alg: 'ES256', kid: 'new' }), { ok: true, active: false })
    await spread()
    t.match(await activateKey({ ...change, kid: 'new' }), { ok: true, previous: 'old' })
    await spread()
    const retire = () => retireKey({ ...change, kid: 'old', maxLifetimeSeconds: LIFETIME })
    t.match(await retire(), { ok: false }, 'tokens of the old key are alive')
    await traffic(LIFETIME)
    t.same(await retire(), { ok: true })
    await spread()
    t.match(await sidecars[0].verify((await sidecars[1].issue(SUBJECT)).token), { ok: true })
    t.equal(count.refusals, 0)
    t.ok(count.checks > 500, `of ${count.checks} checks`)
    t.comment(`${count.refusals} of ${count.checks} checks of live tokens refused`)
  })
}

t.test(
  'what the order of steps is for: the traffic above does notice a rotation in the wrong one',
  async (t) => {
    const hasty = await twoSidecars(t.testdir({}))
    await addKey({ ...hasty.change, alg: 'ES256', kid: 'new', activate: true })
    await hasty.sidecars[0].reload()
    await hasty.traffic(100)
    t.ok(hasty.count.refusals > 0, 'a key that signs before everybody knows it')

    const forced = await twoSidecars(t.testdir({}))
    await forced.traffic(100)
    await addKey({ ...forced.change, alg: 'ES256', kid: 'new', activate: true })
    for (const { reload } of forced.sidecars) await reload()
    await retireKey({ ...forced.change, kid: 'old', maxLifetimeSeconds: LIFETIME, force: true })
    for (const { reload } of forced.sidecars) await reload()
    await forced.traffic(100)
    t.ok(forced.count.refusals > 0, 'a key that goes before its tokens')
  },
)
