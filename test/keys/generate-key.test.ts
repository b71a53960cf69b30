import t from 'tap'
import { generateKey, newKid } from '../../src/keys/generate-key.ts'
import { isKid, parseKeyFile } from '../../src/keys/jwk-file.ts'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'

const NOON = Date.UTC(2026, 10, 20, 12) / 1000

t.test(
  'a new key of each algorithm is one that the loader takes, with its private half and age',
  async (t) => {
    for (const alg of ALGORITHMS) {
      const jwk = await generateKey(alg, 'k', NOON)
      const parsed = await parseKeyFile({ bytes: Buffer.from(JSON.stringify(jwk)), kid: 'k', modifiedAt: 0 })
      t.match(parsed, { ok: true, file: { alg, signing: { alg }, verification: { createdAt: NOON } } }, alg)
    }
  },
)

t.test('no two keys are alike', async (t) => {
  for (const alg of ['HS256', 'EdDSA'] as const) {
    const [one, two] = [await generateKey(alg, 'k', 0), await generateKey(alg, 'k', 0)]
    t.not(one.k ?? one.d, two.k ?? two.d, alg)
  }
})

t.test("a new kid tells algorithm and day, and is no other key's", async (t) => {
  const kid = newKid('EdDSA', NOON)
  t.match(kid, /^eddsa-20261120-[0-9a-f]{8}$/)
  t.ok(isKid(kid))
  t.not(newKid('EdDSA', NOON), kid)
})
