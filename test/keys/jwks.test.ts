import t from 'tap'
import { publicJwks } from '../../src/keys/jwks.ts'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'
import { makeKey, ringOf, writeKey } from '../support/keys.ts'

t.test('publishes the public half of every key but a secret', async (t) => {
  const directory = t.testdir({ active: 'es256-key' })
  for (const alg of ALGORITHMS) writeKey(directory, (await makeKey(alg)).privateJwk)
  const { keys } = publicJwks(await ringOf(directory))
  t.same(keys.map(({ alg }) => alg).sort(), ['ES256', 'ES384', 'EdDSA', 'PS256', 'RS256'])
  const allowed = ['kty', 'kid', 'alg', 'use', 'crv', 'x', 'y', 'n', 'e']
  for (const key of keys)
    t.same(
      Object.keys(key).filter((member) => !allowed.includes(member)),
      [],
    )
})

t.test('publishes nothing of a ring of secrets', async (t) => {
  const directory = t.testdir({})
  writeKey(directory, (await makeKey('HS256')).privateJwk)
  t.same(publicJwks(await ringOf(directory)), { keys: [] })
})
