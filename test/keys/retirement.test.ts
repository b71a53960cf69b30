import t from 'tap'
import { readKeyDirectory } from '../../src/keys/key-directory.ts'
import { retirementOf } from '../../src/keys/retirement.ts'
import { makeKey, writeKey } from '../support/keys.ts'

const key = await makeKey()

async function fileOf(directory: string, jwk: object) {
  writeKey(directory, { ...jwk, kid: key.kid })
  const file = (await readKeyDirectory(directory)).files.get(key.kid)
  if (file === undefined) throw new Error('the key was not loaded')
  return file
}

t.test('a key that signed may go when its last token has run out', async (t) => {
  const file = await fileOf(t.testdir({}), { ...key.privateJwk, signedUntil: 1000 })
  t.same(retirementOf(file, 600), { known: true, from: 1600 })
})

t.test('a key that never signed may go at once', async (t) => {
  t.same(retirementOf(await fileOf(t.testdir({}), key.privateJwk), 600), { known: true, from: 0 })
})

t.test('of a key whose private half is elsewhere nobody knows, unless it was noted', async (t) => {
  t.match(retirementOf(await fileOf(t.testdir({}), key.publicJwk), 600), {
    known: false,
    why: /sign elsewhere/,
  })
  const noted = await fileOf(t.testdir({}), { ...key.publicJwk, signedUntil: 1000 })
  t.same(retirementOf(noted, 600), { known: true, from: 1600 })
})
