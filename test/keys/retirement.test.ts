import { utimesSync } from 'node:fs'
import t from 'tap'
import { readKeyDirectory } from '../../src/keys/key-directory.ts'
import { retirementOf } from '../../src/keys/retirement.ts'
import { makeKey, writeKey } from '../support/keys.ts'

const key = await makeKey()

async function retirement(directory: string, jwk: object) {
  writeKey(directory, { ...jwk, kid: key.kid })
  const keys = await readKeyDirectory(directory)
  const file = keys.files.get(key.kid)
  if (file === undefined) throw new Error('the key was not loaded')
  return retirementOf(file, keys, 600)
}

t.test('a key that signed may go when its last token has run out, and the time of a reload', async (t) => {
  const noted = { ...key.privateJwk, signedUntil: 1000 }
  t.same(await retirement(t.testdir({}), noted), { known: true, from: 1601 })
})

t.test('a key that never signed may go at once', async (t) => {
  t.same(await retirement(t.testdir({}), { ...key.privateJwk, signedUntil: 0 }), { known: true, from: 0 })
})

t.test('of a key whose private half is elsewhere nobody knows, unless it was noted', async (t) => {
  t.match(await retirement(t.testdir({}), key.publicJwk), { known: false, why: /sign elsewhere/ })
  const noted = { ...key.publicJwk, signedUntil: 1000 }
  t.same(await retirement(t.testdir({}), noted), { known: true, from: 1601 })
})

t.test('a key without a note may have signed until active was last changed, which is said', async (t) => {
  const directory = t.testdir({ active: 'other' })
  writeKey(directory, (await makeKey('ES256', 'other')).privateJwk)
  utimesSync(`${directory}/active`, 5000, 5000)
  t.match(await retirement(directory, key.privateJwk), {
    known: true,
    from: 5601,
    why: /active was last changed at 1970-01-01T01:23:20\.000Z/,
  })
})
