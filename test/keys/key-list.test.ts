import t from 'tap'
import { readKeyDirectory } from '../../src/keys/key-directory.ts'
import { listKeys } from '../../src/keys/key-list.ts'
import { tokenLifetimes } from '../../src/keys/key-ring.ts'
import { makeKey, ringOf, writeKey } from '../support/keys.ts'

t.test('lists keys oldest first, with their state in a rotation', async (t) => {
  const directory = t.testdir({ active: 'new' })
  const day = Date.UTC(2026, 10, 20) / 1000
  writeKey(directory, { ...(await makeKey('EdDSA', 'half')).publicJwk, ...{ iat: day + 3 } })
  writeKey(directory, {
    ...(await makeKey('ES256', 'new')).privateJwk,
    ...{ iat: day + 2, signedUntil: day },
  })
  writeKey(directory, {
    ...(await makeKey('ES256', 'old')).privateJwk,
    ...{ iat: day, signedUntil: day + 9 },
  })
  writeKey(directory, {
    ...(await makeKey('HS256', 'spare')).privateJwk,
    ...{ iat: day + 1, signedUntil: 0 },
  })
  const at = (second: number) => `2026-11-20T00:00:${String(second).padStart(2, '0')}.000Z`
  const never = { active: false, private: true, signedUntil: null }
  t.same(listKeys(await readKeyDirectory(directory), 10), [
    { ...never, kid: 'old', alg: 'ES256', created: at(0), signedUntil: at(9), removableFrom: at(20) },
    { ...never, kid: 'spare', alg: 'HS256', created: at(1), removableFrom: at(1) },
    { ...never, kid: 'new', alg: 'ES256', active: true, created: at(2), removableFrom: null },
    { ...never, kid: 'half', alg: 'EdDSA', private: false, created: at(3), removableFrom: null },
  ])
})

t.test('tokens of a key may be valid as long as the key signs, here or elsewhere', async (t) => {
  const directory = t.testdir({ active: 'new' })
  const write = async (kid: string, members: object) =>
    writeKey(directory, { ...(await makeKey('ES256', kid)).privateJwk, ...members })
  await write('new', { signedUntil: 900 })
  await write('old', { signedUntil: 1000 })
  await write('older', { signedUntil: 500 })
  await write('spare', { signedUntil: 0 })
  await write('unknown', {})
  t.same(tokenLifetimes(await ringOf(directory), 60, 1_000_500), [
    { kid: 'new', seconds: 60 },
    { kid: 'old', seconds: 61 },
    { kid: 'older', seconds: 0 },
    { kid: 'spare', seconds: 60 },
    { kid: 'unknown', seconds: 60 },
  ])
})
