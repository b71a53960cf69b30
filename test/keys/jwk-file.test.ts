import type { JWK } from 'jose'
import t from 'tap'
import { isKid, parseKeyFile } from '../../src/keys/jwk-file.ts'
import { ALGORITHMS } from '../../src/keys/key-ring.ts'
import { makeKey, type TestKey } from '../support/keys.ts'

const kid = 'k1'
const bytesOf = (text: string) => new TextEncoder().encode(text)
const parse = (jwk: object) => parseKeyFile({ bytes: bytesOf(JSON.stringify(jwk)), kid, modifiedAt: 1234 })
const parseText = (text: string) => parseKeyFile({ bytes: bytesOf(text), kid, modifiedAt: 1234 })

async function problemsOf(jwk: object) {
  const parsed = await parse(jwk)
  return parsed.ok ? [] : parsed.problems
}

const es256 = await makeKey('ES256', kid)
const other = await makeKey('ES256', 'k2')
const rs256 = await makeKey('RS256', kid)
const otherRsa = await makeKey('RS256', 'k2')
const edDsa = await makeKey('EdDSA', kid)
const otherEdDsa = await makeKey('EdDSA', 'k2')
const hs256 = await makeKey('HS256', kid)

t.test('a private key of each algorithm signs and verifies', async (t) => {
  for (const alg of ALGORITHMS) {
    const parsed = await parse((await makeKey(alg, kid)).privateJwk)
    if (!parsed.ok) throw new Error(`${alg}: ${parsed.problems}`)
    const { verification, signing } = parsed.file
    t.match({ verification, signing }, { verification: { kid, alg }, signing: { kid, alg } }, alg)
    t.same(verification.key.usages, alg === 'HS256' ? ['sign', 'verify'] : ['verify'], alg)
    t.equal(verification.key.extractable, false, alg)
    t.equal(signing?.key.extractable, false, alg)
    t.ok(signing?.key.usages.includes('sign'), alg)
  }
})

t.test('a public key verifies only', async (t) => {
  for (const alg of ALGORITHMS.filter((alg) => alg !== 'HS256')) {
    const parsed = await parse((await makeKey(alg, kid)).publicJwk)
    t.ok(parsed.ok && parsed.file.signing === undefined, alg)
  }
})

t.test('what is published of a key is its public parameters and nothing else', async (t) => {
  const extra = { iat: 5, signedUntil: 6, x5c: ['AA'], note: 'ours', key_ops: ['sign'], ext: true }
  for (const [key, parameters] of [
    [es256, ['crv', 'x', 'y']],
    [rs256, ['n', 'e']],
    [edDsa, ['crv', 'x']],
  ] as const) {
    const parsed = await parse({ ...key.privateJwk, ...extra })
    if (!parsed.ok) throw new Error(String(parsed.problems))
    const published = parsed.file.verification.publicJwk ?? {}
    t.same(Object.keys(published), ['kty', 'kid', 'alg', 'use', ...parameters])
    t.match(published, { kid, alg: key.alg, use: 'sig' })
  }
  const symmetric = await parse(hs256.privateJwk)
  t.ok(symmetric.ok && !('publicJwk' in symmetric.file.verification), 'an HS256 key has nothing to publish')
})

t.test('a key is as old as its file says, or as its file', async (t) => {
  const told = await parse({ ...es256.privateJwk, iat: 99, signedUntil: 100 })
  t.match(told, { file: { verification: { createdAt: 99, signedUntil: 100 } } })
  const untold = await parse(es256.privateJwk)
  t.match(untold, { file: { verification: { createdAt: 1234 } } })
  t.notOk(untold.ok && 'signedUntil' in untold.file.verification)
})

t.test('refuses what is not one plain JSON object', async (t) => {
  const valid = JSON.stringify(es256.privateJwk)
  for (const [text, problem] of [
    ['', 'is not a JSON text'],
    [valid.slice(0, -1), 'is not a JSON text'],
    [`\uFEFF${valid}`, 'is not a JSON text'],
    [`${valid.slice(0, -1)},"kid":"k1"}`, 'names a member twice'],
    ['[]', 'is not a JSON object'],
    ['null', 'is not a JSON object'],
    [
      '-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n',
      'holds PEM; a JWK (RFC 7517) is needed',
    ],
  ] as const) {
    t.same(await parseText(text), { ok: false, problems: [problem] }, problem)
  }
})

t.test('refuses a key that is not what its file name, its alg or its use says', async (t) => {
  const jwk = es256.privateJwk
  const algs = 'alg must be one of ES256, ES384, EdDSA, RS256, PS256, HS256'
  const table: readonly (readonly [string, object, string])[] = [
    ['no kid', { ...jwk, kid: undefined }, 'kid is missing'],
    ['another kid', { ...jwk, kid: 'k3' }, 'kid differs from the name of the file'],
    ['a kid that is no text', { ...jwk, kid: ['k1'] }, 'kid differs from the name of the file'],
    ['no alg', { ...jwk, alg: undefined }, 'alg is missing'],
    ['alg none', { ...jwk, alg: 'none' }, algs],
    ['an algorithm in another case', { ...jwk, alg: 'es256' }, algs],
    ['an algorithm we do not take', { ...jwk, alg: 'ES512' }, algs],
    ['an inherited name as alg', { ...jwk, alg: 'constructor' }, algs],
    ['alg of a longer curve', { ...jwk, alg: 'ES384' }, 'crv must be P-384 for ES384'],
    ['alg of another key type', { ...jwk, alg: 'RS256' }, 'kty must be RSA for RS256'],
    ['alg of a secret', { ...jwk, alg: 'HS256' }, 'kty must be oct for HS256'],
    ['kty alone changed', { ...jwk, kty: 'OKP' }, 'kty must be EC for ES256'],
    ['X25519', { ...edDsa.privateJwk, crv: 'X25519' }, 'crv must be Ed25519 for EdDSA'],
    ['for encryption', { ...jwk, use: 'enc' }, 'use must be sig'],
    ['key_ops that only verify', { ...jwk, key_ops: ['verify'] }, 'key_ops contradicts what the key is for'],
    [
      'key_ops with more',
      { ...jwk, key_ops: ['sign', 'deriveKey'] },
      'key_ops contradicts what the key is for',
    ],
    ['key_ops that is no list', { ...jwk, key_ops: 'sign' }, 'key_ops contradicts what the key is for'],
    [
      'key_ops of a public key that sign',
      { ...es256.publicJwk, key_ops: ['sign'] },
      'key_ops contradicts what the key is for',
    ],
    [
      'key_ops of a secret that only sign',
      { ...hs256.privateJwk, key_ops: ['sign'] },
      'key_ops contradicts what the key is for',
    ],
    ['iat that is no time', { ...jwk, iat: '2026-01-01' }, 'iat must be whole epoch seconds'],
    ['signedUntil before time began', { ...jwk, signedUntil: -1 }, 'signedUntil must be whole epoch seconds'],
  ]
  for (const [name, changed, problem] of table) t.same(await problemsOf(changed), [problem], name)
})

t.test('refuses members that are missing or not canonical base64url', async (t) => {
  const { privateJwk } = es256
  for (const [name, jwk, members] of [
    ['no x', { ...privateJwk, x: undefined }, 'x'],
    ['no x and y', { ...privateJwk, x: undefined, y: undefined }, 'x, y'],
    ['a number', { ...privateJwk, x: 12 }, 'x'],
    ['padding', { ...privateJwk, x: `${privateJwk.x}=` }, 'x'],
    ['empty', { ...privateJwk, d: '' }, 'd'],
    ['d null', { ...privateJwk, d: null }, 'd'],
    ['no secret', { ...hs256.privateJwk, k: undefined }, 'k'],
    ['a secret as text', { ...hs256.privateJwk, k: 'correct horse battery staple, all of it' }, 'k'],
  ] as const) {
    t.same(await problemsOf(jwk), [`missing or not base64url: ${members}`], name)
  }
})

t.test('refuses keys that cannot work or whose halves do not belong together', async (t) => {
  const flipped = (key: TestKey, member: 'x' | 'y' | 'n') => {
    const bytes = Buffer.from(String(key.publicJwk[member]), 'base64url')
    bytes[9] = Number(bytes[9]) ^ 1
    return { ...key.publicJwk, [member]: bytes.toString('base64url') }
  }
  const table: readonly (readonly [string, TestKey, JWK])[] = [
    ['a point off the curve', es256, flipped(es256, 'y')],
    ['a coordinate cut short', es256, { ...es256.publicJwk, x: String(es256.publicJwk.x).slice(0, 40) }],
    ["another key's private half", es256, { ...es256.privateJwk, d: String(other.privateJwk.d) }],
    ["another EdDSA key's private half", edDsa, { ...edDsa.privateJwk, d: String(otherEdDsa.privateJwk.d) }],
    [
      "another RSA key's public half",
      rs256,
      { ...rs256.privateJwk, n: String(otherRsa.privateJwk.n), e: String(otherRsa.privateJwk.e) },
    ],
    ['an RSA key without its factors', rs256, { ...rs256.publicJwk, d: String(rs256.privateJwk.d) }],
  ]
  for (const [name, { alg }, jwk] of table) {
    t.same(
      await problemsOf(jwk),
      [`is no valid ${alg} key, or its private and public halves do not belong together`],
      name,
    )
  }
})

t.test('refuses weak keys', async (t) => {
  t.same(await problemsOf({ ...rs256.publicJwk, e: 'AQ' }), [
    'the RSA exponent must be odd and at least 65537',
  ])
  t.same(
    await problemsOf({ ...hs256.privateJwk, k: Buffer.alloc(31, 'abcdefghijk').toString('base64url') }),
    ['the secret is shorter than 32 bytes'],
  )
})

t.test('tells every problem at once, and nothing of the key', async (t) => {
  const problems = await problemsOf({
    ...rs256.privateJwk,
    kid: 'x',
    use: 'enc',
    iat: 0.5,
    key_ops: [],
    e: 'Aw',
  })
  t.equal(problems.length, 5)
  for (const member of ['n', 'd', 'p', 'q'] as const) {
    t.notOk(problems.join().includes(String(rs256.privateJwk[member]).slice(0, 12)))
  }
})

t.test('a kid is a safe file name that no reader passes over', async (t) => {
  for (const good of ['a', 'A-1_b.c', '-x', '_', 'k'.repeat(128)]) t.equal(isKid(good), true, good)
  for (const bad of ['', '.a', '..', '../a', 'a/b', 'a b', 'ä', 'a\n', 'a\0', 'k'.repeat(129)]) {
    t.equal(isKid(bad), false, JSON.stringify(bad))
  }
})
