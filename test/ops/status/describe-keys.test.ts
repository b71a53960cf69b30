import { writeFileSync } from 'node:fs'
import type { JWK } from 'jose'
import t from 'tap'
import { describeKeys } from '../../../src/ops/status/describe-keys.ts'
import { makeKey, makeKeyDirectory, ringOf, writeKey } from '../../support/keys.ts'

const dated = (jwk: JWK, members: { iat: number; signedUntil?: number }): JWK => ({ ...jwk, ...members })

t.test('keys are told newest first, with their age and the life of their tokens', async (t) => {
  const { directory, privateJwk, kid } = await makeKeyDirectory(t)
  writeKey(directory, dated(privateJwk, { iat: 1000 }))
  const old = await makeKey('ES384', 'old')
  writeKey(directory, dated(old.publicJwk, { iat: 500, signedUntil: 1000 }))
  const gone = await makeKey('ES256', 'gone')
  writeKey(directory, dated(gone.publicJwk, { iat: 100, signedUntil: 500 }))
  const keys = describeKeys(await ringOf(directory), 3600, 3_000_000)
  t.strictSame(keys, [
    {
      kid,
      alg: 'ES256',
      signs: true,
      createdAt: '1970-01-01T00:16:40.000Z',
      ageSeconds: 2000,
      tokensLiveSeconds: 3600,
    },
    {
      kid: 'old',
      alg: 'ES384',
      signs: false,
      createdAt: '1970-01-01T00:08:20.000Z',
      ageSeconds: 2500,
      tokensLiveSeconds: 1601, // another sidecar may sign until it has read the note
    },
    {
      kid: 'gone',
      alg: 'ES256',
      signs: false,
      createdAt: '1970-01-01T00:01:40.000Z',
      ageSeconds: 2900,
      tokensLiveSeconds: 1101,
    },
  ])
})

t.test('no part of a key is told, of a shared secret neither', async (t) => {
  const { directory } = await makeKeyDirectory(t, { alg: 'HS256' })
  const { privateJwk } = await makeKey('ES256', 'other')
  writeKey(directory, privateJwk)
  writeFileSync(`${directory}/active`, 'other')
  for (const key of describeKeys(await ringOf(directory), 3600, 0)) {
    t.strictSame(Object.keys(key), ['kid', 'alg', 'signs', 'createdAt', 'ageSeconds', 'tokensLiveSeconds'])
    t.equal(key.ageSeconds, 0, 'a key from the future has no negative age')
  }
})
