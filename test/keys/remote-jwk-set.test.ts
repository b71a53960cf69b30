import type { JWK } from 'jose'
import t from 'tap'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'
import { parseJwkSet } from '../../src/keys/remote-jwk-set.ts'
import { makeKey } from '../support/keys.ts'

const first = await makeKey('ES256', 'first')
const second = await makeKey('EdDSA', 'second')

const parse = (set: unknown) => parseJwkSet(Buffer.from(JSON.stringify(set)), 1000)

/** The kids that are taken, and the warnings or problems. */
async function outcome(...keys: unknown[]) {
  const loaded = await parse({ keys })
  return loaded.ok
    ? { kids: [...loaded.value.verification.keys()], said: loaded.warnings }
    : { kids: [], said: loaded.problems }
}

t.test('a key of every public algorithm is taken, pinned to it, and none signs', async (t) => {
  const keys = await Promise.all(ALGORITHMS.filter((alg) => alg !== 'HS256').map((alg) => makeKey(alg)))
  const loaded = await parse({ keys: keys.map(({ publicJwk }) => publicJwk), more: 1 })
  if (!loaded.ok) throw new Error(loaded.problems.join())
  t.same(loaded.warnings, [])
  t.notOk('signing' in loaded.value)
  for (const { kid, alg, publicJwk } of keys) {
    const key = loaded.value.verification.get(kid)
    t.match(key, { kid, alg, publicJwk, createdAt: 1000 })
    t.same([key?.key.type, key?.key.usages], ['public', ['verify']])
  }
})

t.test('a key tells when it was made and when it stopped signing, where it does', async (t) => {
  const loaded = await parse({ keys: [{ ...first.publicJwk, iat: 5, signedUntil: 7 }] })
  t.match(loaded, { ok: true })
  if (loaded.ok) t.match(loaded.value.verification.get('first'), { createdAt: 5, signedUntil: 7 })
})

t.test('keys that are not for us are left out with a warning that quotes nothing', async (t) => {
  const weak = {
    kty: 'RSA',
    alg: 'RS256',
    kid: 'weak',
    n: Buffer.alloc(128, 0xff).toString('base64url'),
    e: 'AQAB',
  }
  const table: readonly (readonly [jwk: unknown, why: RegExp])[] = [
    [7, /^keys\[0\] left out: it is not a JSON object$/],
    [{ ...second.publicJwk, kid: undefined }, /its kid is not/],
    [{ ...second.publicJwk, kid: 'canary canary' }, /its kid is not/],
    [{ ...second.publicJwk, alg: undefined }, /second: alg is missing/],
    [{ ...second.publicJwk, alg: 'ES256' }, /second: kty must be EC for ES256/],
    [{ ...second.publicJwk, alg: 'Ed25519' }, /second: alg must be one of/],
    [{ ...second.publicJwk, use: 'enc' }, /second is not for signatures/],
    [{ ...second.publicJwk, key_ops: ['encrypt'] }, /second: key_ops contradicts/],
    [{ ...second.publicJwk, x: 'canary!' }, /second: missing or not base64url: x/],
    [{ ...first.publicJwk, kid: 'off', x: 'A'.repeat(43) }, /off: is no valid ES256 key/],
    [weak, /the RSA modulus is shorter/],
    [(await makeKey('HS256', 'secret')).privateJwk, /secret is a secret that everyone can read/],
    [{ kty: 'oct', kid: 'oct', alg: 'ES256', k: 'canary' }, /oct: kty must be EC/],
  ]
  for (const [jwk, why] of table) {
    const { kids, said } = await outcome(jwk, first.publicJwk)
    t.same(kids, ['first'])
    t.match(said.join('\n'), why)
    t.notMatch(said.join('\n'), 'canary')
  }
})

t.test('a kid that stands twice is nobody’s, and the others are taken', async (t) => {
  const twin = { ...second.publicJwk, kid: 'first' }
  for (const other of [twin, first.publicJwk, { kid: 'first' }]) {
    const { kids, said } = await outcome(first.publicJwk, second.publicJwk, other)
    t.same(kids, ['second'])
    t.match(said, [
      /keys\[0\] left out: the kid first stands in the set more than once/,
      /keys\[2\] left out/,
    ])
  }
  const { kids } = await outcome(first.publicJwk, { ...twin, use: 'enc' })
  t.same(kids, ['first'], 'a key for another use does not count')
})

t.test('a private half is not read, and warned of', async (t) => {
  const loaded = await parse({ keys: [first.privateJwk] })
  t.match(loaded, { ok: true, warnings: [/^keys\[0\] first comes with its private half/] })
  if (!loaded.ok) return
  t.notOk('signing' in loaded.value)
  t.notMatch(
    JSON.stringify([...loaded.value.verification.values(), loaded.warnings]),
    String(first.privateJwk.d),
  )
  const { kids, said } = await outcome({ ...second.privateJwk, use: 'sig', alg: 'none' }, first.publicJwk)
  t.same([kids, said.length], [['first'], 2], 'also of a key that is left out')
})

t.test('what is no set, or holds nothing to verify with, is refused', async (t) => {
  const key: JWK = first.publicJwk
  const many = Array.from({ length: 101 }, () => key)
  for (const [text, problem] of [
    ['', 'is not a JWK Set'],
    ['<html>', 'is not a JWK Set'],
    ['[]', 'is not a JWK Set'],
    ['{"keys":{}}', 'is not a JWK Set'],
    ['{"keys":[],"keys":[]}', 'is not a JWK Set'],
    [JSON.stringify(key), 'is not a JWK Set'],
    ['{"keys":[]}', 'holds no key that can be used'],
    ['{"keys":[7]}', 'holds no key that can be used'],
    [JSON.stringify({ keys: many }), 'holds more than 100 keys'],
  ] as const) {
    const loaded = await parseJwkSet(Buffer.from(text), 0)
    t.equal(loaded.ok || loaded.problems[0], problem, text.slice(0, 30))
  }
  t.match(await outcome(7), { said: [/no key/, /keys\[0\] left out/] }, 'and it is said why')
})
