import { readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { activateKey, addKey, retireKey } from '../../src/keys/key-changes.ts'
import { loadKeyRing, readKeyDirectory, signingFile } from '../../src/keys/key-directory.ts'
import { lastSigned, NEVER_SIGNED } from '../../src/keys/last-signed.ts'
import { tokenLifetimes } from '../../src/keys/token-lifetimes.ts'
import { makeKey, ringOf, writeKey } from '../support/keys.ts'

const LIFETIME = 600

/** A key directory that is changed by commands and by hand, at times the test sets. */
function scene(t: Pick<Test, 'testdir'>) {
  const directory = t.testdir({})
  const clock = { seconds: Math.floor(Date.now() / 1000) - 100_000 }
  const now = () => clock.seconds * 1000
  const change = { directory, now }
  /** Runs a command, and gives the files that it has written the age they would have on the clock. */
  const byCommand = async (run: () => Promise<{ readonly ok: boolean }>) => {
    if (!(await run()).ok) throw new Error('refused')
    const today = Date.now() / 1000 - 1000
    for (const name of readdirSync(directory)) {
      const path = `${directory}/${name}`
      if (statSync(path).mtimeMs / 1000 > today) utimesSync(path, clock.seconds, clock.seconds)
    }
  }
  return {
    directory,
    clock,
    add: (kid: string, activate = false) =>
      byCommand(() => addKey({ ...change, alg: 'ES256', kid, activate })),
    activate: (kid: string) => byCommand(() => activateKey({ ...change, kid })),
    byHand: (kid: string) => {
      writeFileSync(`${directory}/active`, kid)
      utimesSync(`${directory}/active`, clock.seconds, clock.seconds)
    },
    retire: (kid: string) => retireKey({ ...change, kid, maxLifetimeSeconds: LIFETIME }),
    gauge: async (kid: string) =>
      tokenLifetimes(await ringOf(directory), LIFETIME, now()).find((key) => key.kid === kid)?.seconds,
    last: async (kid: string) => {
      const keys = await readKeyDirectory(directory)
      const file = keys.files.get(kid)
      return file && lastSigned(file, { ...keys, signing: signingFile(keys).file })
    },
  }
}

t.test('commands leave a note that can be trusted, and a later command does not spoil it', async (t) => {
  const { clock, add, activate, last, retire, gauge } = scene(t)
  await add('one')
  await add('two')
  t.same(await last('two'), { at: NEVER_SIGNED, isNoted: true })
  clock.seconds += 50
  const handedOver = clock.seconds
  await activate('two')
  t.same(await last('one'), { at: handedOver, isNoted: true })
  clock.seconds += 50
  await add('three', true)
  t.same(await last('one'), { at: handedOver, isNoted: true })
  clock.seconds = handedOver + LIFETIME
  t.match(await retire('one'), { ok: false })
  t.equal(await gauge('one'), 1)
  clock.seconds++
  t.equal(await gauge('one'), 0)
  t.same(await retire('one'), { ok: true })
})

t.test('a key that signed until active was changed by hand does not go before its tokens', async (t) => {
  const { clock, add, byHand, last, retire, gauge } = scene(t)
  await add('one')
  await add('two')
  clock.seconds += 1000
  byHand('two')
  const changed = clock.seconds
  t.same(await last('one'), { at: changed, isNoted: false })
  clock.seconds += LIFETIME
  const refused = await retire('one')
  t.match(refused, { ok: false, problems: [/no note can be trusted .* active was last changed at/] })
  const until = new Date((changed + 1 + LIFETIME) * 1000).toISOString()
  t.match(refused, { problems: [new RegExp(`alive until ${until}`)] }, 'with the time from which it is safe')
  t.equal(await gauge('one'), 1, 'the gauge says the same')
  clock.seconds++
  t.same([await gauge('one'), await retire('one')], [0, { ok: true }])
})

t.test(
  'a note that a rollback by hand has overtaken is not trusted, and put right by the next command',
  async (t) => {
    const { clock, add, activate, byHand, last, retire } = scene(t)
    await add('one')
    await add('two')
    await activate('two')
    clock.seconds += 1000
    byHand('one')
    clock.seconds += 5000
    byHand('two')
    const changed = clock.seconds
    t.same(await last('one'), { at: changed, isNoted: false }, 'it signed again meanwhile')
    t.match(await retire('one'), { ok: false })
    clock.seconds += 10
    await add('three')
    await activate('three')
    t.same(await last('one'), { at: changed, isNoted: true })
    t.same(await last('two'), { at: clock.seconds, isNoted: true })
    clock.seconds += LIFETIME - 10
    t.match(await retire('one'), { ok: false })
    clock.seconds++
    t.same(await retire('one'), { ok: true })
  },
)

t.test('that a key has never signed is no longer believed once active was changed by hand', async (t) => {
  const { clock, add, byHand, last, retire } = scene(t)
  await add('one')
  await add('spare')
  clock.seconds += 1000
  byHand('spare')
  clock.seconds += 1000
  byHand('one')
  t.same(await last('spare'), { at: clock.seconds, isNoted: false })
  t.match(await retire('spare'), { ok: false })
})

t.test(
  'a private key that was put there by hand may have signed until active was last changed',
  async (t) => {
    const { directory, clock, add, last } = scene(t)
    await add('one')
    const since = clock.seconds
    writeKey(directory, (await makeKey('ES256', 'copied')).privateJwk)
    t.same(await last('copied'), { at: since, isNoted: false })
    writeKey(directory, { ...(await makeKey('ES256', 'copied')).privateJwk, ...{ signedUntil: since + 9 } })
    clock.seconds += 5
    t.same(await last('copied'), { at: since + 9, isNoted: true })
  },
)

t.test('files that were copied together, as into a volume, keep their notes', async (t) => {
  const { directory, clock, add, activate, last } = scene(t)
  await add('one')
  await add('two')
  await activate('two')
  const at = clock.seconds
  for (const name of ['one.jwk.json', 'two.jwk.json', 'active'])
    utimesSync(`${directory}/${name}`, at + 9e4, at + 9e4)
  t.same(await last('one'), { at, isNoted: true })
})

t.test('where nothing says which key signs, the younger of note and change counts', async (t) => {
  const { directory, clock, add, activate, byHand, last } = scene(t)
  await add('one')
  await add('two')
  await activate('two')
  clock.seconds += 10
  byHand('gone')
  t.same(await last('one'), { at: clock.seconds, isNoted: false })
  t.equal((await loadKeyRing({ directory })).ok, false)
})

t.test('of a public half only its note is known', async (t) => {
  const { directory, add, last } = scene(t)
  await add('one')
  const { publicJwk } = await makeKey('EdDSA', 'half')
  writeKey(directory, publicJwk)
  t.equal(await last('half'), undefined)
  writeKey(directory, { ...publicJwk, ...{ signedUntil: 1000 } })
  t.same(await last('half'), { at: 1000, isNoted: true })
})
