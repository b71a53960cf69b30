import { generateKeyPairSync } from 'node:crypto'
import type { JWK } from 'jose'
import t from 'tap'
import { generateKey, importKey, newKid } from '../../src/keys/jwk.ts'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'
import { makeKey, type TestKey } from '../support/keys.ts'

const kid = 'k1'
const es256 = await makeKey('ES256', kid)
const rs256 = await makeKey('RS256', kid)
const edDsa = await makeKey('EdDSA', kid)
const hs256 = await makeKey('HS256', kid)

async function imported(jwk: object) {
  const result = await importKey(jwk, 1234)
  if (!result.ok) throw new Error(result.problems.join())
  return result.value
}

async function problemsOf(jwk: object) {
  const result = await importKey(jwk, 1234)
  return result.ok ? [] : result.problems
}

t.test('a private key of each algorithm signs and verifies, a public one only verifies', async (t) => {
  for (const alg of ALGORITHMS) {
    const key = await imported((await makeKey(alg, kid)).privateJwk)
    t.match(key, { kid, alg })
    t.same(key.verifyKey.usages, alg === 'HS256' ? ['sign', 'verify'] : ['verify'], alg)
    t.equal(key.signKey?.extractable, false, alg)
    t.ok(key.signKey?.usages.includes('sign'), alg)
    if (alg !== 'HS256') t.notOk((await imported((await makeKey(alg, kid)).publicJwk)).signKey, alg)
  }
})

t.test('the published JWK contains only public parameters', async (t) => {
  const extra = { iat: 5, signedUntil: 6, x5c: ['AA'], oth: [], note: 'ours', key_ops: ['sign'], ext: true }
  for (const [key, parameters] of [
    [es256, ['crv', 'x', 'y']],
    [rs256, ['n', 'e']],
    [edDsa, ['crv', 'x']],
  ] as const) {
    const published = (await imported({ ...key.privateJwk, ...extra })).publicJwk ?? {}
    t.same(Object.keys(published).sort(), ['kty', 'kid', 'alg', 'use', ...parameters].sort())
    t.match(published, { kid, alg: key.alg, use: 'sig' })
  }
  t.notOk('publicJwk' in (await imported(hs256.privateJwk)), 'nothing of a secret')
})

t.test('the age of a key is its iat, or else that of its file', async (t) => {
  const dated = await imported({ ...es256.privateJwk, iat: 99, signedUntil: 100 })
  t.match(dated, { createdAtSeconds: 99, stoppedAtSeconds: 100 })
  const undated = await imported(es256.privateJwk)
  t.equal(undated.createdAtSeconds, 1234)
  t.equal(undated.stoppedAtSeconds, undefined)
})

t.test('refuses a key that does not match its alg or use', async (t) => {
  const jwk = es256.privateJwk
  const algs = 'alg must be one of ES256, ES384, EdDSA, RS256, PS256, HS256'
  const table: readonly (readonly [string, object, string])[] = [
    ['no kid', { ...jwk, kid: undefined }, 'kid is missing; must be a string'],
    ['a kid that is no text', { ...jwk, kid: ['k1'] }, 'kid must be a string'],
    ['no alg', { ...jwk, alg: undefined }, algs.replace('alg must', 'alg is missing; must')],
    ['alg none', { ...jwk, alg: 'none' }, algs],
    ['an algorithm in another case', { ...jwk, alg: 'es256' }, algs],
    ['an unsupported algorithm', { ...jwk, alg: 'ES512' }, algs],
    ['an inherited name as alg', { ...jwk, alg: 'constructor' }, algs],
    ['alg of a longer curve', { ...jwk, alg: 'ES384' }, 'kty and crv must be EC P-384 for ES384'],
    ['kty alone changed', { ...jwk, kty: 'OKP' }, 'kty and crv must be EC P-256 for ES256'],
    ['X25519', { ...edDsa.privateJwk, crv: 'X25519' }, 'kty and crv must be OKP Ed25519 for EdDSA'],
    ['for encryption', { ...jwk, use: 'enc' }, 'use must be sig'],
    ['key_ops with more', { ...jwk, key_ops: ['deriveKey'] }, 'key_ops.0 must be sign or verify'],
    ['key_ops that is no list', { ...jwk, key_ops: 'sign' }, 'key_ops must be a list'],
    ['iat that is no time', { ...jwk, iat: '2026-01-01' }, 'iat must be an integer of epoch seconds'],
    ['a negative time', { ...jwk, signedUntil: -1 }, 'signedUntil must be an integer of epoch seconds'],
    ['iat in milliseconds', { ...jwk, iat: 1.8e12 }, 'iat must be an integer of epoch seconds'],
    ['no x', { ...jwk, x: undefined }, 'x is missing; must be base64url'],
    ['a number', { ...jwk, x: 12 }, 'x must be base64url'],
    ['padding', { ...jwk, x: `${jwk.x}=` }, 'x must be base64url'],
    ['d null', { ...jwk, d: null }, 'd must be base64url'],
    ['a secret as text', { ...hs256.privateJwk, k: 'correct horse battery staple' }, 'k must be base64url'],
  ]
  for (const [name, changed, problem] of table) t.same(await problemsOf(changed), [problem], name)
})

t.test('refuses unusable keys and mismatched halves', async (t) => {
  const other = await makeKey('ES256', 'k2')
  const otherRsa = await makeKey('RS256', 'k2')
  const otherEdDsa = await makeKey('EdDSA', 'k2')
  const { x } = es256.publicJwk
  const table: readonly (readonly [string, TestKey, object])[] = [
    ['a point off the curve', es256, { ...es256.publicJwk, y: x }],
    ['a truncated coordinate', es256, { ...es256.publicJwk, x: String(x).slice(0, 40) }],
    ['an empty private half', es256, { ...es256.privateJwk, d: '' }],
    ["another key's private half", es256, { ...es256.privateJwk, d: other.privateJwk.d }],
    ["another EdDSA key's private half", edDsa, { ...edDsa.privateJwk, d: otherEdDsa.privateJwk.d }],
    ["another RSA key's public half", rs256, { ...rs256.privateJwk, n: otherRsa.privateJwk.n }],
    ['an RSA key without its factors', rs256, { ...rs256.publicJwk, d: rs256.privateJwk.d }],
  ]
  for (const [name, { alg }, jwk] of table) {
    const problem = `is no valid ${alg} key, or its private and public halves do not belong together`
    t.same(await problemsOf(jwk), [problem], name)
  }
})

t.test('refuses weak keys by their length and exponent', async (t) => {
  const secret = (bytes: number) => ({
    ...hs256.privateJwk,
    k: Buffer.alloc(bytes, 'ab').toString('base64url'),
  })
  const rsa = (modulusLength: number, publicExponent: number): JWK => ({
    ...generateKeyPairSync('rsa', { modulusLength, publicExponent }).privateKey.export({ format: 'jwk' }),
    ...{ kid, alg: 'PS256' },
  })
  const padded = Buffer.concat([Buffer.alloc(200), Buffer.from(String(rsa(1024, 65_537).n), 'base64url')])
  const table: readonly (readonly [string, object, readonly string[]])[] = [
    ['31 bytes', secret(31), ['the secret is shorter than 32 bytes']],
    ['32 bytes', secret(32), []],
    ['1024 bits', rsa(1024, 65_537), ['the RSA modulus is shorter than 2048 bits']],
    [
      '1024 bits after zeros',
      { ...rs256.publicJwk, n: padded.toString('base64url') },
      ['the RSA modulus is shorter than 2048 bits'],
    ],
    ['exponent 3', rsa(2048, 3), ['the RSA exponent is smaller than 65537']],
    ['exponent 1', { ...rs256.publicJwk, e: 'AQ' }, ['the RSA exponent is smaller than 65537']],
  ]
  for (const [name, jwk, problems] of table) t.same(await problemsOf(jwk), problems, name)
})

t.test('reports all problems at once without parts of the key', async (t) => {
  const wrong = { kid: 7, use: 'enc', iat: 0.5, key_ops: 7, e: 'A=' }
  const problems = await problemsOf({ ...rs256.privateJwk, ...wrong })
  t.equal(problems.length, 5)
  for (const member of ['n', 'd', 'p', 'q'] as const) {
    t.notOk(problems.join().includes(String(rs256.privateJwk[member]).slice(0, 12)))
  }
})

t.test('a generated key of each algorithm can be imported, and no two are alike', async (t) => {
  for (const alg of ALGORITHMS) {
    const [one, two] = [await generateKey(alg, kid, 77), await generateKey(alg, kid, 77)]
    t.match(await imported(one), { alg, createdAtSeconds: 77, signKey: {} }, alg)
    t.not(one.k ?? one.d, two.k ?? two.d, alg)
  }
})

t.test('a new kid has algorithm and date', async (t) => {
  t.match(newKid('EdDSA', Date.UTC(2026, 10, 20, 12) / 1000), /^eddsa-20261120-[0-9a-f]{8}$/)
})
