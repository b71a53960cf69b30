import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { keysCommand } from '../../src/cli/keys.ts'
import { loadKeyRing } from '../../src/keys/key-directory.ts'
import { makeKey, makeKeyDirectory, ringOf, writeKey } from '../support/keys.ts'
import { runCommand } from '../support/run-command.ts'

const NOW = Date.UTC(2026, 10, 20, 12)

/** Runs `keys …` at a given time. */
const keys = (args: readonly string[], at = NOW) => runCommand(keysCommand, args, { now: at })

t.test('add prints the new key as JSON without its private part', async (t) => {
  const directory = `${t.testdir({})}/keys`
  const { stdout, stderr, failure } = await keys(['add', '--directory', directory])
  t.same([stderr, failure], ['', undefined])
  const { kid, ...rest } = JSON.parse(stdout)
  t.same(rest, { alg: 'ES256', active: true, created: '2026-11-20T12:00:00.000Z' })
  t.match(kid, /^es256-20261120-[0-9a-f]{8}$/)
  t.equal((await ringOf(directory)).signing?.kid, kid)

  const further = await keys(['add', '--directory', directory, '--alg', 'EdDSA', '--kid', 'mine', '--json'])
  t.match(JSON.parse(further.stdout), { kid: 'mine', alg: 'EdDSA', active: false })
  const active = await keys(['add', '--directory', directory, '--alg', 'HS256', '--kid', 'now', '--activate'])
  t.match(JSON.parse(active.stdout), { kid: 'now', alg: 'HS256', active: true })
  t.equal((await ringOf(directory)).signing?.kid, 'now')
})

t.test('a complete rotation, by the lifetime that the settings say', async (t) => {
  const directory = t.testdir({})
  const config = join(
    t.testdir({ 'a.yaml': 'token: { lifetimeSeconds: 86390, clockToleranceSeconds: 0 }\n' }),
    'a.yaml',
  )
  await keys(['add', '--directory', directory, '--kid', 'old'])
  await keys(['add', '--directory', directory, '--kid', 'new'])
  t.same(await keys(['activate', 'new', '--directory', directory, '--config', config]), {
    stdout: 'new signs in place of old\n',
    stderr: '',
    failure: undefined,
  })
  const early = await keys(['retire', 'old', '--directory', directory], NOW + 86_400_999)
  t.match(early.failure, {
    exitCode: 1,
    message: /^tokens signed by old can be alive until 2026-11-21T12:00:01/,
  })
  t.equal(early.stdout, '')
  const active = await keys(['retire', 'new', '--directory', directory, '--force'], NOW + 86_400_000)
  t.match(active.failure, { exitCode: 1, message: /^new signs new tokens/ })
  t.match(await keys(['retire', 'old', '--directory', directory], NOW + 86_401_000), {
    stdout: 'retired old\n',
    failure: undefined,
  })
  t.ok((await loadKeyRing(directory)).ok)
})

t.test('without a lifetime, retire does not guess', async (t) => {
  const directory = t.testdir({
    'week.yaml': 'token: { lifetimeSeconds: 604800, clockToleranceSeconds: 5 }\n',
  })
  const at = ['--directory', `${directory}/keys`]
  const week = ['--config', `${directory}/week.yaml`]
  for (const kid of ['a', 'b', 'c']) {
    await keys(['add', ...at, '--kid', kid])
  }
  await keys(['activate', 'b', ...at])
  const later = NOW + 604_806_000
  t.match((await keys(['retire', 'a', ...at], later)).failure, {
    exitCode: 1,
    message:
      /^tokens signed by a can be alive until an unknown time: give --config or --max-lifetime-seconds; --force/,
  })
  t.match(JSON.parse((await keys(['list', ...at, '--json'])).stdout)[0], { kid: 'a', retirableFrom: null })
  t.match((await keys(['retire', 'a', ...at, ...week], later - 1)).failure, {
    exitCode: 1,
    message: /alive until/,
  })
  t.match(await keys(['retire', 'a', ...at, ...week], later), { failure: undefined })
  await keys(['add', ...at, '--kid', 'd', '--activate', ...week])
  t.match(JSON.parse((await keys(['list', ...at, '--json'])).stdout)[0], {
    kid: 'b',
    retirableFrom: new Date(later).toISOString(),
  })
  t.match((await keys(['retire', 'b', ...at], later - 1)).failure, { exitCode: 1, message: /alive until/ })
  t.match(await keys(['retire', 'b', ...at], later), { failure: undefined }, 'by what its file noted')
  t.match((await keys(['retire', 'c', ...at, '--config', '/none'])).failure, { exitCode: 2 })
  t.match(await keys(['retire', 'c', ...at]), { failure: undefined }, 'it never signed')
})

t.test('activate prints the previously active key, also as JSON', async (t) => {
  const directory = t.testdir({})
  for (const kid of ['a', 'b']) {
    await keys(['add', '--directory', directory, '--kid', kid])
  }
  const activate = async (kid: string, ...more: string[]) =>
    (await keys(['activate', kid, '--directory', directory, ...more])).stdout
  t.same(JSON.parse(await activate('b', '--json')), { active: 'b', previous: 'a' })
  t.same(JSON.parse(await activate('b', '--json')), { active: 'b', previous: null })
  t.equal(await activate('b'), 'b signs\n')
})

t.test('list shows the oldest key first, the state of each, and warnings on stderr', async (t) => {
  const directory = t.testdir({ README: 'text' })
  for (const kid of ['a', 'b', 'spare']) {
    await keys(['add', '--directory', directory, '--kid', kid])
  }
  await keys(['activate', 'b', '--directory', directory])
  const half = await makeKey('EdDSA', 'half')
  const dated = { ...half.publicJwk, iat: NOW / 1000 - 5 }
  writeKey(directory, dated)
  const list = (...more: string[]) => keys(['list', '--directory', directory, ...more])
  const { stdout, stderr } = await list()
  t.equal(stderr, `warning: ${directory}/README: ignored, key files are named <kid>.jwk.json\n`)
  const time = '2026-11-20T12:00:00.000Z'
  t.same(
    stdout.split('\n').map((line) => line.split(/ {2,}/)),
    [
      ['KID', 'ALG', 'STATE', 'CREATED', 'STOPPED SIGNING', 'RETIRABLE FROM'],
      ['half', 'EdDSA', 'public only', '2026-11-20T11:59:55.000Z', '-', '-'],
      ['a', 'ES256', 'verifies', time, time, '-'],
      ['b', 'ES256', 'active', time, '-', '-'],
      ['spare', 'ES256', 'verifies', time, '-', 'now'],
      [''],
    ],
  )
  const found = JSON.parse((await list('--json', '--max-lifetime-seconds', '60')).stdout)
  t.match(found[1], { kid: 'a', active: false, signedUntil: time, retirableFrom: '2026-11-20T12:01:01.000Z' })
  t.match(found[0], { kid: 'half', private: false, signedUntil: null, retirableFrom: null })
  t.equal(found.length, 4)
  const empty = await keys(['list', '--json', '--directory', t.testdir({})])
  t.same(JSON.parse(empty.stdout), [])
})

t.test('wrong usage exits with 2 and one line', async (t) => {
  const directory = t.testdir({})
  const at = ['--directory', directory]
  for (const args of [
    ['add'],
    ['add', ...at, '--alg', 'none'],
    ['add', ...at, '--alg', 'es256'],
    ['add', ...at, '--kid', '../x'],
    ['add', ...at, '--kid', ''],
    ['add', ...at, '--what'],
    ['list'],
    ['list', '--directory', ''],
    ['activate', ...at],
    ['activate', 'a/b', ...at],
    ['retire', 'a', ...at, '--max-lifetime-seconds', '0'],
    ['retire', 'a', ...at, '--max-lifetime-seconds', '1.5'],
    ['retire', 'a', ...at, '--max-lifetime-seconds', ''],
    ['turn', ...at],
  ]) {
    const { failure, stdout, stderr } = await keys(args)
    t.equal(failure?.exitCode, 2, args.join(' ').replace(directory, 'D'))
    t.equal(stdout, '')
    t.match(stderr, /^error: .+\n/)
  }
})

t.test('add creates missing directories, or fails at once with the reason', async (t) => {
  const directory = `${t.testdir({ file: '' })}/a/b/c`
  t.equal((await keys(['add', '--directory', directory])).failure, undefined)
  for (const [path, reason] of [
    ['/proc/none/keys', 'there is no such file or directory'],
    [`${directory}/../../../file`, 'it is not a directory'],
    [`${directory}/../../../file/keys`, 'a part of the path is not a directory'],
  ]) {
    const { failure } = await keys(['add', '--directory', `${path}`])
    t.match(failure, { exitCode: 2, message: `: ${reason}` })
  }
})

t.test('unusable keys exit with 2 and one line per problem', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  writeFileSync(`${directory}/x.jwk.json`, '{')
  writeFileSync(`${directory}/y.jwk.json`, '[]')
  const message = `${directory}/x.jwk.json: is not a JSON text\n${directory}/y.jwk.json: is not a JSON object`
  for (const args of [['list'], ['add'], ['activate', kid], ['retire', kid]]) {
    const { failure, stdout } = await keys([...args, '--directory', directory])
    t.match(failure, { exitCode: 2, message }, String(args[0]))
    t.equal(stdout, '')
  }
  const missing = [['list'], ['activate', kid], ['retire', kid]].map((args) =>
    keys([...args, '--directory', `${directory}/none`]),
  )
  for (const { failure } of await Promise.all(missing)) {
    t.match(failure, { exitCode: 2, message: /none: .*there is no such file or directory(?:; |$)/ })
  }
  t.same(readdirSync(directory).sort(), [`${kid}.jwk.json`, 'x.jwk.json', 'y.jwk.json'], 'nothing is changed')
})

t.test('a directory locked by another command is not changed', async (t) => {
  const { directory } = await makeKeyDirectory(t)
  mkdirSync(`${directory}/.lock`)
  const before = readFileSync(`${directory}/es256-key.jwk.json`, 'utf8')
  const { failure } = await keys(['add', '--directory', directory, '--kid', 'b'])
  t.match(failure, {
    exitCode: 1,
    message: `${directory}: another command is changing it; if none runs, remove its lock ${directory}/.lock`,
  })
  t.notOk(existsSync(`${directory}/b.jwk.json`))
  t.equal(readFileSync(`${directory}/es256-key.jwk.json`, 'utf8'), before)
})
