import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import t from 'tap'
import { activateKey, addKey, retireKey } from '../../src/keys/key-changes.ts'
import { loadKeyRing, readKeyDirectory } from '../../src/keys/key-directory.ts'
import { DONE, loaded } from '../../src/values/result.ts'
import { makeKey, makeKeyDirectory, ringOf, writeKey } from '../support/keys.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const now = () => NOW
const seconds = NOW / 1000

async function add(directory: string, options: { kid?: string; activate?: boolean } = {}) {
  const added = await addKey({ directory, alg: 'ES256', now, ...options })
  if (!added.ok) throw new Error(added.problems.join())
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
  for (const name of readdirSync(directory))
    t.equal(statSync(`${directory}/${name}`).mode & 0o777, 0o600, name)
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
  t.same(await addKey({ directory, alg: 'ES256', now, kid }), {
    ok: false,
    isUnusable: false,
    problems: [`there is already a key ${kid}`],
  })
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
  t.match(await activateKey({ directory, kid: 'none', now }), {
    isUnusable: false,
    problems: [/no key none/],
  })
  t.match(await activateKey({ directory, kid: 'half', now }), {
    isUnusable: false,
    problems: [/public half/],
  })
})

t.test('activating repairs an ambiguous directory; each key counts as having signed', async (t) => {
  const directory = t.testdir({})
  for (const kid of ['a', 'b', 'c']) writeKey(directory, (await makeKey('ES256', kid)).privateJwk)
  t.match(await retireKey({ directory, kid: 'a', now, longestSeconds: 60 }), {
    isUnusable: false,
    problems: [/several private keys/],
  })
  t.same(await activateKey({ directory, kid: 'b', now }), loaded({ previous: undefined }))
  t.equal(await signerOf(directory), 'b')
  t.same(
    ['a', 'b', 'c'].map((kid) => noteOf(directory, kid)),
    [seconds, undefined, seconds],
  )
})

t.test('a key without a recorded end of signing is kept', async (t) => {
  const directory = t.testdir({ active: 'new' })
  for (const kid of ['old', 'new']) writeKey(directory, (await makeKey('ES256', kid)).privateJwk)
  const options = { directory, kid: 'old', longestSeconds: 60 }
  t.match(await retireKey({ ...options, now }), { isUnusable: false, problems: [/does not record when/] })
  t.match(await activateKey({ directory, kid: 'new', now }), { ok: true })
  t.match(await retireKey({ ...options, now }), { isUnusable: false, problems: [/alive until/] })
  t.match(await retireKey({ ...options, now: () => NOW + 61_000 }), { ok: true })
})

t.test('force removes a key whose tokens may still be valid', async (t) => {
  const directory = t.testdir({})
  await add(directory, { kid: 'old' })
  await add(directory, { activate: true })
  writeKey(directory, (await makeKey('EdDSA', 'half')).publicJwk)
  const options = { directory, now, longestSeconds: 60 }
  t.match(await retireKey({ ...options, kid: 'half' }), { isUnusable: false, problems: [/sign elsewhere/] })
  for (const kid of ['half', 'old']) t.same(await retireKey({ ...options, kid, force: true }), DONE)
  t.equal((await readKeyDirectory(directory)).files.size, 1)
})

t.test('concurrent commands leave a directory that loads, with every key', async (t) => {
  const directory = t.testdir({})
  const kids = ['a', 'b', 'c', 'd']
  await Promise.all(kids.map((kid) => add(directory, { kid, activate: true })))
  t.same([...(await readKeyDirectory(directory)).files.keys()], kids)
  t.ok((await loadKeyRing(directory)).ok)
})

t.test('concurrent loads never see an invalid directory', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  let changing = true
  let loads = 0
  const watch = (async () => {
    while (changing) {
      const loaded = await loadKeyRing(directory)
      if (!loaded.ok) return loaded.problems
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
