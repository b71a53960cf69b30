import t from 'tap'
import { activateKey, addKey } from '../../src/keys/key-changes.ts'
import { tokenLifetimes } from '../../src/keys/token-lifetimes.ts'
import { ringOf } from '../support/keys.ts'

const DAY = 86_400

t.test('tokens of a key live their lifetime from when it stopped signing, or from now', async (t) => {
  const directory = t.testdir({})
  let time = 1_000_000_000_500
  const now = () => time
  await addKey({ directory, alg: 'ES256', kid: 'old', now })
  const lifetimes = async () =>
    Object.fromEntries(
      tokenLifetimes(await ringOf(directory), DAY, time).map((one) => [one.kid, one.seconds]),
    )
  t.same(await lifetimes(), { old: DAY })
  await addKey({ directory, alg: 'ES256', kid: 'new', now })
  t.same(await lifetimes(), { old: DAY, new: DAY }, 'the new one may sign elsewhere already')
  await activateKey({ directory, kid: 'new', now })
  t.same(
    await lifetimes(),
    { old: DAY + 2, new: DAY },
    'the part of a second counts as a whole one, and a reload takes another',
  )
  time += 1000 * DAY
  t.same(await lifetimes(), { old: 2, new: DAY })
  time += 10_000
  t.same(await lifetimes(), { old: 0, new: DAY })
  await activateKey({ directory, kid: 'old', now })
  t.same(await lifetimes(), { old: DAY, new: DAY + 2 }, 'a key that signs again counts from now')
})
