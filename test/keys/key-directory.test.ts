import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { isKid, loadKeyRing, readKeyDirectory } from '../../src/keys/key-directory.ts'
import { ALGORITHMS, publicJwks, tokenLifetimes } from '../../src/keys/key-ring.ts'
import { makeKey, makeKeyDirectory, ringOf, writeKey } from '../support/keys.ts'

const first = await makeKey('ES256', 'first')
const second = await makeKey('EdDSA', 'second')
const secret = await makeKey('HS256', 'secret')

async function problemsOf(directory: string) {
  const loaded = await loadKeyRing(directory)
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.replaceAll(directory, 'D'))
}

t.test('the only private key signs, even if it is not activated, and every key verifies', async (t) => {
  const { directory } = await makeKeyDirectory(t, { kid: 'first' })
  writeKey(directory, second.publicJwk)
  for (const active of [undefined, 'first', 'first\n', ' first \r\n']) {
    if (active !== undefined) writeFileSync(`${directory}/active`, active)
    const ring = await ringOf(directory)
    t.match(ring.signing, { kid: 'first', alg: 'ES256' })
    t.same([...ring.keys.keys()], ['first', 'second'])
  }
})

t.test('the signing key must be unambiguous', async (t) => {
  const directory = t.testdir({})
  t.same(await problemsOf(directory), [
    'D: holds no key (a file named <kid>.jwk.json); storage-auth-sidecar keys add --directory D creates one',
  ])
  writeKey(directory, first.privateJwk)
  writeFileSync(`${directory}/active`, 'second')
  t.same(await problemsOf(directory), [
    'D: active names second, but there is no second.jwk.json; storage-auth-sidecar keys activate KID --directory D chooses one',
  ])
  writeKey(directory, second.publicJwk)
  t.same(await problemsOf(directory), [
    'D: active names second, but second.jwk.json lacks the private half; storage-auth-sidecar keys activate KID --directory D chooses one',
  ])
  rmSync(`${directory}/active`)
  writeKey(directory, secret.privateJwk)
  t.same(await problemsOf(directory), [
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
  t.same(await problemsOf(directory), [
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
  for (const name of ['first.jwk.json', 'active']) symlinkSync(`..data/${name}`, `${directory}/${name}`)
  mkdirSync(`${directory}/.lock`)
  writeFileSync(`${directory}/.hidden.jwk.json`, 'broken')
  const loaded = await loadKeyRing(directory)
  t.match(loaded, { ok: true, value: { signing: { kid: 'first' } }, warnings: [] })
})

t.test('a world-readable private key gets a warning, a public one does not', async (t) => {
  const directory = t.testdir({})
  writeKey(directory, first.privateJwk)
  writeKey(directory, second.publicJwk)
  for (const kid of ['first', 'second']) chmodSync(`${directory}/${kid}.jwk.json`, 0o644)
  const { warnings } = await readKeyDirectory(directory)
  t.same(warnings, [`${directory}/first.jwk.json can be read by every user of this machine`])
})

t.test('publishes the public half of every key and no private part', async (t) => {
  const directory = t.testdir({ active: 'es256-key' })
  for (const alg of ALGORITHMS) writeKey(directory, (await makeKey(alg)).privateJwk)
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
  for (const good of ['a', 'A-1_b.c', '-x', '_', 'k'.repeat(128)]) t.equal(isKid(good), true, good)
  for (const bad of ['', '.a', '..', '../a', 'a/b', 'a b', 'ä', 'a\n', 'a\0', 'k'.repeat(129)]) {
    t.equal(isKid(bad), false, JSON.stringify(bad))
  }
})
