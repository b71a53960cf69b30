import { generateKeyPairSync } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import type { JWK } from 'jose'
import t from 'tap'
import { loaded, NotDone } from '../../src/base/result.ts'
import { generateKey, importKey, newKid } from '../../src/keys/jwk.ts'
import { activateKey, addKey, retireKey } from '../../src/keys/key-changes.ts'
import { isKid, loadKeyRing } from '../../src/keys/key-directory.ts'
import { ALGORITHMS, fingerprintOfKeys, publicJwks, tokenLifetimes } from '../../src/keys/key-ring.ts'
import { makeKey, makeKeyDirectory, ringOf, type TestKey, writeKey } from '../support/keys.ts'

const kid = 'k1'
const es256 = await makeKey('ES256', kid)
const rs256 = await makeKey('RS256', kid)
const edDsa = await makeKey('EdDSA', kid)
const hs256 = await makeKey('HS256', kid)

async function imported(jwk: object) {
  const result = await importKey(jwk, 1234)
  if (!result.ok) {
    throw new Error(result.problems.join())
  }
  return result.value
}

async function keyProblems(jwk: object) {
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
    if (alg !== 'HS256') {
      t.notOk((await imported((await makeKey(alg, kid)).publicJwk)).signKey, alg)
    }
  }
})

t.test('the fingerprint of keys is that of their public halves, in any order', async (t) => {
  const other = await makeKey('ES256', 'k2')
  const fingerprint = async (...jwks: object[]) => {
    const keys = await Promise.all(jwks.map(imported))
    return fingerprintOfKeys({ keys: new Map(keys.map((key) => [key.kid, key])) })
  }
  const both = await fingerprint(es256.privateJwk, other.privateJwk)
  t.equal(await fingerprint(other.publicJwk, es256.publicJwk), both)
  t.not(await fingerprint(es256.privateJwk), both)
  const replaced = { ...other.privateJwk, kid }
  t.not(await fingerprint(replaced), await fingerprint(es256.privateJwk), 'another key of the same kid')
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
  for (const [name, changed, problem] of table) {
    t.same(await keyProblems(changed), [problem], name)
  }
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
    t.same(await keyProblems(jwk), [problem], name)
  }
})

t.test('refuses weak keys by their length and exponent', async (t) => {
  const secret = (bytes: number) => ({
    ...hs256.privateJwk,
    k: Buffer.alloc(bytes, 'ab').toString('base64url'),
  })
  const rsa = (modulusLength: number, publicExponent: number): JWK => {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength, publicExponent })
    return { ...privateKey.export({ format: 'jwk' }), kid, alg: 'PS256' }
  }
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
  for (const [name, jwk, problems] of table) {
    t.same(await keyProblems(jwk), problems, name)
  }
})

t.test('reports all problems at once without parts of the key', async (t) => {
  const wrong = { kid: 7, use: 'enc', iat: 0.5, key_ops: 7, e: 'A=' }
  const problems = await keyProblems({ ...rs256.privateJwk, ...wrong })
  t.equal(problems.length, 5)
  for (const member of ['n', 'd', 'p', 'q'] as const) {
    t.notOk(problems.join().includes(String(rs256.privateJwk[member]).slice(0, 12)))
  }
})

t.test('a generated key of each algorithm can be imported, and no two are alike', async (t) => {
  for (const alg of ALGORITHMS) {
    const one = await generateKey(alg, kid, 77)
    const two = await generateKey(alg, kid, 77)
    t.match(await imported(one), { alg, createdAtSeconds: 77, signKey: {} }, alg)
    t.not(one.k ?? one.d, two.k ?? two.d, alg)
  }
})

t.test('a new kid has algorithm and date', async (t) => {
  t.match(newKid('EdDSA', Date.UTC(2026, 10, 20, 12) / 1000), /^eddsa-20261120-[0-9a-f]{8}$/)
})

const first = await makeKey('ES256', 'first')
const second = await makeKey('EdDSA', 'second')
const secret = await makeKey('HS256', 'secret')

async function ringProblems(directory: string) {
  const loaded = await loadKeyRing(directory)
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.replaceAll(directory, 'D'))
}

t.test('the only private key signs, even if it is not activated, and every key verifies', async (t) => {
  const { directory } = await makeKeyDirectory(t, { kid: 'first' })
  writeKey(directory, second.publicJwk)
  for (const active of [undefined, 'first', 'first\n', ' first \r\n']) {
    if (active !== undefined) {
      writeFileSync(`${directory}/active`, active)
    }
    const ring = await ringOf(directory)
    t.match(ring.signing, { kid: 'first', alg: 'ES256' })
    t.same([...ring.keys.keys()], ['first', 'second'])
  }
})

t.test('the signing key must be unambiguous', async (t) => {
  const directory = t.testdir({})
  t.same(await ringProblems(directory), [
    'D: holds no key (a file named <kid>.jwk.json); storage-auth-sidecar keys add --directory D creates one',
  ])
  writeKey(directory, first.privateJwk)
  writeFileSync(`${directory}/active`, 'second')
  t.same(await ringProblems(directory), [
    'D: active names second, but there is no second.jwk.json; storage-auth-sidecar keys activate KID --directory D chooses one',
  ])
  writeKey(directory, second.publicJwk)
  t.same(await ringProblems(directory), [
    'D: active names second, but second.jwk.json lacks the private half; storage-auth-sidecar keys activate KID --directory D chooses one',
  ])
  rmSync(`${directory}/active`)
  writeKey(directory, secret.privateJwk)
  t.same(await ringProblems(directory), [
    'D: several private keys, and no file active to say which signs; storage-auth-sidecar keys activate KID --directory D chooses one',
  ])
})

t.test('all problems of all files are reported', async (t) => {
  const directory = t.testdir({
    active: '',
    'a b.jwk.json': '{"kty":"EC"}',
    'broken.jwk.json': '{"kid":',
    'bom.jwk.json': `\uFEFF${JSON.stringify(first.privateJwk)}`,
    'dir.jwk.json': {},
    'empty.jwk.json': '',
    'large.jwk.json': ' '.repeat(65_537),
    'list.jwk.json': '[]',
    'pem.jwk.json': '-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n',
  })
  symlinkSync('nowhere', `${directory}/gone.jwk.json`)
  writeKey(directory, first.privateJwk, 'renamed')
  writeKey(directory, { ...first.privateJwk, kid: '../first' }, 'path')
  t.same(await ringProblems(directory), [
    'D/a b.jwk.json: kid is missing; must be a string',
    'D/a b.jwk.json: alg is missing; must be one of ES256, ES384, EdDSA, RS256, PS256, HS256',
    'D/active: does not hold a kid',
    'D/bom.jwk.json: is not a JSON text',
    'D/broken.jwk.json: is not a JSON text',
    'D/dir.jwk.json: is not a file',
    'D/empty.jwk.json: is not a JSON text',
    'D/gone.jwk.json: cannot be read: there is no such file or directory',
    'D/large.jwk.json: is larger than 65536 bytes',
    'D/list.jwk.json: is not a JSON object',
    'D/path.jwk.json: kid must be 1 to 128 letters, digits, . _ - and no . first',
    'D/pem.jwk.json: holds PEM; a JWK (RFC 7517) is needed',
    'D/renamed.jwk.json: its kid is first; rename the file to first.jwk.json',
  ])
})

t.test('a Kubernetes volume is read through its links, without its dot files', async (t) => {
  const directory = t.testdir({})
  mkdirSync(`${directory}/..2026`)
  writeKey(`${directory}/..2026`, first.privateJwk)
  writeFileSync(`${directory}/..2026/active`, 'first')
  symlinkSync('..2026', `${directory}/..data`)
  for (const name of ['first.jwk.json', 'active']) {
    symlinkSync(`..data/${name}`, `${directory}/${name}`)
  }
  mkdirSync(`${directory}/.lock`)
  writeFileSync(`${directory}/.hidden.jwk.json`, 'broken')
  const loaded = await loadKeyRing(directory)
  t.match(loaded, { ok: true, value: { signing: { kid: 'first' } }, warnings: [] })
})

t.test('a world-readable private key gets a warning, a public one does not', async (t) => {
  const directory = t.testdir({})
  writeKey(directory, first.privateJwk)
  writeKey(directory, second.publicJwk)
  for (const kid of ['first', 'second']) {
    chmodSync(`${directory}/${kid}.jwk.json`, 0o644)
  }
  const warnings = [`${directory}/first.jwk.json can be read by every user of this machine`]
  t.match(await loadKeyRing(directory), { warnings })
})

t.test('publishes the public half of every key and no private part', async (t) => {
  const directory = t.testdir({ active: 'es256-key' })
  for (const alg of ALGORITHMS) {
    writeKey(directory, (await makeKey(alg)).privateJwk)
  }
  const { keys } = publicJwks(await ringOf(directory))
  t.same(keys.map(({ alg }) => alg).sort(), ['ES256', 'ES384', 'EdDSA', 'PS256', 'RS256'])
  const published = new Set(keys.flatMap((key) => Object.keys(key)))
  t.same([...published].sort(), ['alg', 'crv', 'e', 'kid', 'kty', 'n', 'use', 'x', 'y'])
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

t.test('a kid is a safe file name', async (t) => {
  for (const good of ['a', 'A-1_b.c', '-x', '_', 'k'.repeat(128)]) {
    t.equal(isKid(good), true, good)
  }
  for (const bad of ['', '.a', '..', '../a', 'a/b', 'a b', 'ä', 'a\n', 'a\0', 'k'.repeat(129)]) {
    t.equal(isKid(bad), false, JSON.stringify(bad))
  }
})

const NOW = Date.UTC(2026, 10, 20, 12)
const now = () => NOW
const seconds = NOW / 1000

async function add(directory: string, options: { kid?: string; activate?: boolean } = {}) {
  const added = await addKey({ directory, alg: 'ES256', now, ...options })
  if (!added.ok) {
    throw new Error(JSON.stringify(added))
  }
  return added.value
}

const signerOf = async (directory: string) => (await ringOf(directory)).signing?.kid
const noteOf = (directory: string, kid: string) =>
  JSON.parse(readFileSync(`${directory}/${kid}.jwk.json`, 'utf8')).signedUntil

t.test('the first key creates the directory and signs', async (t) => {
  const directory = `${t.testdir({})}/new/keys`
  const added = await add(directory)
  t.match(added, { alg: 'ES256', active: true, createdAtSeconds: seconds })
  t.equal(await signerOf(directory), added.kid)
  t.equal(statSync(directory).mode & 0o777, 0o700)
  for (const name of readdirSync(directory)) {
    t.equal(statSync(`${directory}/${name}`).mode & 0o777, 0o600, name)
  }
})

t.test('the first private key beside public ones signs, despite an old active file', async (t) => {
  const directory = t.testdir({ active: 'gone\n' })
  writeKey(directory, (await makeKey()).publicJwk)
  const added = await add(directory)
  t.equal(added.active, true)
  t.equal(await signerOf(directory), added.kid)
})

t.test('a key is never overwritten or replaced by adding another one', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  const before = readFileSync(`${directory}/${kid}.jwk.json`, 'utf8')
  const added = addKey({ directory, alg: 'ES256', now, kid })
  await t.rejects(added, new NotDone(`there is already a key ${kid}`))
  t.equal(readFileSync(`${directory}/${kid}.jwk.json`, 'utf8'), before)
  await add(directory, { kid: 'another' })
  t.equal(await signerOf(directory), kid, 'a second private key leaves it clear which one signs')
})

t.test('activating switches keys, keeps other fields of the file, and can be repeated', async (t) => {
  const directory = t.testdir({})
  const note = { ...(await makeKey('ES256', 'old')).privateJwk, iat: 7, note: 'made by hand' }
  writeKey(directory, note)
  await add(directory, { kid: 'new' })
  t.same(await activateKey({ directory, kid: 'new', now }), loaded({ previous: 'old' }))
  t.same(JSON.parse(readFileSync(`${directory}/old.jwk.json`, 'utf8')), { ...note, signedUntil: seconds })
  t.equal(await signerOf(directory), 'new')

  t.same(await activateKey({ directory, kid: 'new', now: () => NOW + 5000 }), loaded({ previous: undefined }))
  t.equal(noteOf(directory, 'new'), undefined, 'a key that goes on signing has not stopped')
  t.equal(noteOf(directory, 'old'), seconds, 'and the other has not signed since')

  t.same(await activateKey({ directory, kid: 'old', now: () => NOW + 6001 }), loaded({ previous: 'new' }))
  t.equal(noteOf(directory, 'new'), seconds + 7, 'part of a second counts as a second')
})

t.test('only an existing private key can be activated', async (t) => {
  const { directory } = await makeKeyDirectory(t)
  writeKey(directory, (await makeKey('EdDSA', 'half')).publicJwk)
  await t.rejects(activateKey({ directory, kid: 'none', now }), /no key none/)
  await t.rejects(activateKey({ directory, kid: 'half', now }), /public half/)
})

t.test('activating repairs an ambiguous directory; each key counts as having signed', async (t) => {
  const directory = t.testdir({})
  for (const kid of ['a', 'b', 'c']) {
    writeKey(directory, (await makeKey('ES256', kid)).privateJwk)
  }
  const retired = retireKey({ directory, kid: 'a', now, tokenSeconds: 60 })
  await t.rejects(retired, /several private keys/)
  t.same(await activateKey({ directory, kid: 'b', now }), loaded({ previous: undefined }))
  t.equal(await signerOf(directory), 'b')
  t.same(
    ['a', 'b', 'c'].map((kid) => noteOf(directory, kid)),
    [seconds, undefined, seconds],
  )
})

t.test('a key without a recorded end of signing is kept', async (t) => {
  const directory = t.testdir({ active: 'new' })
  for (const kid of ['old', 'new']) {
    writeKey(directory, (await makeKey('ES256', kid)).privateJwk)
  }
  const options = { directory, kid: 'old', tokenSeconds: 60 }
  await t.rejects(retireKey({ ...options, now }), /does not record when/)
  t.match(await activateKey({ directory, kid: 'new', now }), { ok: true })
  await t.rejects(retireKey({ ...options, now }), /alive until/)
  t.match(await retireKey({ ...options, now: () => NOW + 61_000 }), { ok: true })
})

t.test('force removes a key whose tokens may still be valid', async (t) => {
  const directory = t.testdir({})
  await add(directory, { kid: 'old' })
  await add(directory, { activate: true })
  writeKey(directory, (await makeKey('EdDSA', 'half')).publicJwk)
  const options = { directory, now, tokenSeconds: 60 }
  await t.rejects(retireKey({ ...options, kid: 'half' }), /sign elsewhere/)
  for (const kid of ['half', 'old']) {
    t.same(await retireKey({ ...options, kid, force: true }), loaded(undefined))
  }
  t.equal((await ringOf(directory)).keys.size, 1)
})

t.test('concurrent commands leave a directory that loads, with every key', async (t) => {
  const directory = t.testdir({})
  const kids = ['a', 'b', 'c', 'd']
  await Promise.all(kids.map((kid) => add(directory, { kid, activate: true })))
  t.same([...(await ringOf(directory)).keys.keys()], kids)
})

t.test('concurrent loads never see an invalid directory', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  let changing = true
  let loads = 0
  const watch = (async () => {
    while (changing) {
      const loaded = await loadKeyRing(directory)
      if (!loaded.ok) {
        return loaded.problems
      }
      loads++
    }
    return []
  })()
  await add(directory, { kid: 'b' })
  await activateKey({ directory, kid: 'b', now })
  await add(directory, { kid: 'c', activate: true })
  await activateKey({ directory, kid, now })
  changing = false
  t.same(await watch, [])
  t.ok(loads > 0)
  rmSync(directory, { recursive: true })
})
