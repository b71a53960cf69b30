import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { makeCertificate } from '../support/certificates.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { prepareFiles, serve } from '../support/program.ts'
import { runCommand } from '../support/run-command.ts'
import { startSidecar, type TestSidecarOptions } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { swapVolume, WAYS_OF_WRITING, type WayOfWriting } from '../support/ways-of-writing.ts'

/** A sidecar with a file of revocations, and what is done with it. */
async function setup(t: Test, options: TestSidecarOptions = {}) {
  const revocationsFile = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocationsFile, 'revocations: []\n')
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    ...options,
    settings: { 'revocations-file': revocationsFile, ...options.settings },
  })
  const client = sidecarClient(sidecar)
  /** Puts the tokens into the sidecar's token cache. */
  const cacheTokens = async (...tokens: string[]) => {
    const before = await sidecar.metric('auth_sidecar_token_cache_hits_total')
    for (const token of [...tokens, ...tokens]) {
      if ((await client.check(token)) !== 'ok') {
        throw new Error('a good token was refused')
      }
    }
    const hits = (await sidecar.metric('auth_sidecar_token_cache_hits_total')) - before
    t.ok(hits >= tokens.length, 'the tokens are cached')
  }
  /** Waits until the response to a token changes. */
  const becomes = async (token: string, answer: string, what: string) => {
    await eventually(async () => (await client.check(token)) === answer, what, SOON_MS)
    t.pass(what)
  }
  const reloads = (subject: string, result: string) =>
    sidecar.metric(`auth_sidecar_reloads_total{subject="${subject}",result="${result}"}`)
  return { sidecar, client, revocationsFile, cacheTokens, becomes, reloads }
}

t.test('a credential that is disabled, removed or expired ends its cached tokens', async (t) => {
  const names = ['disabled', 'removed', 'expired', 'untouched'] as const
  const { sidecar, client, cacheTokens, becomes, reloads } = await setup(t, {
    credentials: names.map((accessKey) => ({ accessKey })),
  })
  const { credentialsFile, logins } = sidecar
  const [disabled, removed, expired, untouched] = await Promise.all(logins.map(client.login))
  if (!disabled || !removed || !expired || !untouched) {
    throw new Error('four logins were made')
  }
  await cacheTokens(disabled, removed, expired, untouched)
  const command = (verb: string, accessKey: string) =>
    runCommand(credentialsCommand, [
      ...[verb, '--file', credentialsFile],
      '--account',
      'acme',
      '--access-key',
      accessKey,
    ])

  t.match(await command('disable', 'disabled'), { failure: undefined })
  await becomes(disabled, 'InvalidToken', 'the token of a disabled credential is refused')
  t.match(await command('remove', 'removed'), { failure: undefined })
  await becomes(removed, 'InvalidToken', 'the token of a removed credential is refused')
  const text = readFileSync(credentialsFile, 'utf8')
  const past = new Date(Date.now() - 60_000).toISOString()
  writeFileSync(credentialsFile, text.replace(/( +)- accessKey: expired\n/, `$&$1  expiresAt: ${past}\n`))
  await becomes(expired, 'InvalidToken', 'the token of an expired credential is refused')
  t.match(
    await Promise.all(logins.slice(0, 3).map(client.login)),
    Array.from({ length: 3 }, () => '403 Authentication failed'),
    'and so are logins',
  )
  t.equal(await client.check(untouched), 'ok')
  t.equal(await reloads('credentials', 'ok'), 3)

  t.match(await command('enable', 'disabled'), { failure: undefined })
  await becomes(disabled, 'ok', 'a credential that is enabled again has its token back')
})

t.test('a credential that expires ends its cached tokens at that moment', async (t) => {
  let now = Date.now()
  const { sidecar, client, cacheTokens } = await setup(t, {
    now: () => now,
    credentials: [{ expiresAt: new Date(now + 200_000).toISOString() }],
  })
  await cacheTokens(sidecar.token)
  now += 199_000
  t.equal(await client.check(sidecar.token), 'ok')
  now += 1000
  t.equal(await client.check(sidecar.token), 'InvalidToken')
})

t.test('a revocation ends a cached token and no other; without it the token is valid again', async (t) => {
  const { sidecar, client, revocationsFile, cacheTokens, becomes } = await setup(t)
  const jti = randomUUID()
  const token = await sidecar.mint({ claims: { jti } })
  await cacheTokens(token, sidecar.token)
  writeFileSync(revocationsFile, `revocations:\n- jti: ${jti}\n`)
  await becomes(token, 'InvalidToken', 'the revoked token is refused')
  t.equal(await client.check(sidecar.token), 'ok')
  t.equal(await sidecar.metric('auth_sidecar_revocations'), 1)
  t.ok(
    (await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="revoked"}')) > 0,
    'under its own reason',
  )
  writeFileSync(revocationsFile, 'revocations: []\n')
  await becomes(token, 'ok', 'the token is accepted')
  t.equal(await sidecar.metric('auth_sidecar_revocations'), 0)
})

t.test('a key that is removed ends its cached tokens and no others', async (t) => {
  const { sidecar, client, cacheTokens, becomes } = await setup(t)
  const { directory } = sidecar.key
  const leaving = await makeKey('ES256', 'leaving')
  writeFileSync(join(directory, 'active'), sidecar.key.kid)
  writeKey(directory, leaving.privateJwk)
  const token = await sidecar.mint({ key: leaving })
  await becomes(token, 'ok', 'the token of a new key is accepted')
  await cacheTokens(token, sidecar.token)
  rmSync(join(directory, 'leaving.jwk.json'))
  await becomes(token, 'InvalidToken', 'the token of the removed key is refused')
  t.equal(await client.check(sidecar.token), 'ok')
  t.ok(await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="unknown_key"}'))
})

/** Mistakes that are made with a file. */
const MISTAKES: Readonly<Record<string, (path: string) => void>> = {
  'half-written': (path) => writeFileSync(path, readFileSync(path).subarray(0, 15)),
  empty: (path) => writeFileSync(path, ''),
  missing: (path) => rmSync(path),
  'a FIFO': (path) => {
    rmSync(path)
    execFileSync('mkfifo', [path])
  },
}

t.test('an invalid version is reported and counted once, and changes nothing', async (t) => {
  const { sidecar, client, revocationsFile, reloads } = await setup(t)
  const jti = randomUUID()
  const revoked = await sidecar.mint({ claims: { jti } })
  writeFileSync(revocationsFile, `revocations:\n- jti: ${jti}\n`)
  await eventually(async () => (await client.check(revoked)) === 'InvalidToken', 'the revocation')

  const seen = new Set<string>()
  let running = true
  const checking = (async () => {
    while (running) {
      await sleep(50) // other processes want the cores, too
      seen.add(`ready ${(await client.ready()).status}`)
      seen.add(`token ${await client.check(sidecar.token)}`)
      seen.add(`revoked token ${await client.check(revoked)}`)
    }
  })()
  const spoil = async (subject: string, path: string) => {
    const failing = () => sidecar.metric(`auth_sidecar_reload_failing{subject="${subject}"}`)
    const good = readFileSync(path)
    let failures = 0
    for (const [what, make] of Object.entries(MISTAKES)) {
      const before = await reloads(subject, 'ok')
      make(path)
      await eventually(async () => (await failing()) === 1, `${subject}: ${what} to be noticed`)
      t.equal(await reloads(subject, 'failed'), ++failures, `${subject}: ${what}`)
      rmSync(path, { recursive: true, force: true })
      writeFileSync(path, good, { mode: 0o600 })
      await eventually(async () => (await failing()) === 0, `${subject}: to be well after ${what}`)
      t.equal(await reloads(subject, 'ok'), before + 1)
    }
    t.equal(await reloads(subject, 'failed'), failures, 'once each, however often it was polled')
    const reported = sidecar.log.filter((line) => line['level'] === 50 && line['subject'] === subject)
    t.equal(reported.length, failures, 'and logged as often')
  }
  await Promise.all([
    spoil('keys', join(sidecar.key.directory, `${sidecar.key.kid}.jwk.json`)),
    spoil('credentials', sidecar.credentialsFile),
    spoil('revocations', revocationsFile),
  ])
  running = false
  await checking
  t.strictSame([...seen].sort(), ['ready 200', 'revoked token InvalidToken', 'token ok'])
})

t.test('a credentials file is reloaded every time, in whatever way it is written', async (t) => {
  const reload = async ([way, write]: [string, WayOfWriting]) => {
    const directory = join(await temporaryDirectory(t), 'mounted')
    const { file, logins } = await makeCredentialsFile(t)
    const good = readFileSync(file, 'utf8')
    const disabled = good.replace(/( +)- accessKey: .*\n/, '$&$1  disabled: true\n')
    write(directory, 'credentials.yaml', good)
    const settings = { 'credentials-file': join(directory, 'credentials.yaml') }
    const client = sidecarClient(await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9', settings }))
    const [login] = logins
    if (login === undefined) {
      throw new Error('there is a login')
    }
    const token = await client.login(login)
    for (const [text, answer] of [
      [disabled, 'InvalidToken'],
      [good, 'ok'],
      [disabled, 'InvalidToken'],
    ] as const) {
      write(directory, 'credentials.yaml', text)
      await eventually(async () => (await client.check(token)) === answer, `${way}: ${answer}`)
      t.pass(`${way}: ${answer}`)
    }
  }
  await Promise.all(Object.entries(WAYS_OF_WRITING).map(reload))
})

t.test('a Secret of keys that Kubernetes swaps is reloaded atomically', async (t) => {
  const directory = join(await temporaryDirectory(t), 'keys')
  const old = await makeKey('ES256', 'swapped-old')
  const next = await makeKey('ES256', 'swapped-new')
  const swap = (files: Readonly<Record<string, string>>) => swapVolume(directory, files)
  const both = {
    'swapped-old.jwk.json': JSON.stringify(old.privateJwk),
    'swapped-new.jwk.json': JSON.stringify(next.privateJwk),
  }
  swap({ 'swapped-old.jwk.json': both['swapped-old.jwk.json'], active: 'swapped-old' })
  const { sidecar, client, becomes, reloads } = await setup(t, { settings: { 'keys-directory': directory } })
  const ofOld = await sidecar.mint({ key: old })
  const ofNew = await sidecar.mint({ key: next })
  t.same([await client.check(ofOld), await client.check(ofNew)], ['ok', 'InvalidToken'])
  swap({ ...both, active: 'swapped-old' })
  await becomes(ofNew, 'ok', 'the token of the new key is accepted')
  t.equal(await client.check(ofOld), 'ok')
  swap({ 'swapped-new.jwk.json': both['swapped-new.jwk.json'], active: 'swapped-new' })
  await becomes(ofOld, 'InvalidToken', 'the token of the old key is refused')
  t.equal(await client.check(ofNew), 'ok')
  t.equal(await reloads('keys', 'failed'), 0)
})

t.test('SIGHUP names the settings of the file that need a restart', async (t) => {
  const { files } = await prepareFiles(t)
  const config = join(await temporaryDirectory(t), 'sidecar.yaml')
  writeFileSync(config, 'upstreams: [{ prefix: /, url: http://127.0.0.1:9 }]\n')
  const sidecar = await serve(t, { ...files, config, 'shutdown-lame-duck-seconds': '0' })
  const hangUp = async () => {
    const seen = sidecar.log().length
    sidecar.child.kill('SIGHUP')
    const after = () => sidecar.log().slice(seen)
    await eventually(() => after().filter(({ msg }) => msg === 'new version active').length >= 2, 'a reload')
    return after().filter(({ level }) => level === 40)
  }
  t.strictSame(await hangUp(), [], 'an unchanged file')
  writeFileSync(config, 'upstreams: [{ prefix: /, url: http://127.0.0.1:8 }]\ntimeouts: { idleSeconds: 9 }\n')
  const changed = {
    from: config,
    settings: ['upstreams', 'timeouts.idleSeconds'],
    msg: 'settings of the configuration file have changed: they need a restart',
  }
  t.match(await hangUp(), [changed])
  writeFileSync(config, 'upstreams: 1\ncanary: {}\n')
  const problems = [/^upstreams: must be a list/, /^canary: unknown setting/]
  t.match(await hangUp(), [{ problems, msg: 'the configuration file is not valid: a restart would fail' }])
})

t.test('SIGHUP reloads everything, changed or not', async (t) => {
  const { files, token } = await prepareFiles(t)
  const directory = dirname(files['credentials-file'])
  const revocations = join(directory, 'revocations.yaml')
  const caFile = join(directory, 'ca.pem')
  writeFileSync(revocations, 'revocations: []\n')
  writeFileSync(caFile, makeCertificate({ commonName: 'authority', authority: true }).cert)
  chmodSync(files['credentials-file'], 0o644)
  const sidecar = await serve(t, {
    ...files,
    'revocations-file': revocations,
    upstreams: JSON.stringify([{ prefix: '/', url: 'https://127.0.0.1:9', caFile }]),
    'shutdown-lame-duck-seconds': '0',
  })
  const client = sidecarClient(sidecar)
  const loaded = () => sidecar.log().filter(({ msg }) => msg === 'new version active').length
  const warned = sidecar.log().filter(({ level }) => level === 40)
  t.match(warned, [{ msg: /can be read by every user of this machine$/ }])
  t.equal(await client.check(token), 'ok')
  sidecar.child.kill('SIGHUP')
  await eventually(() => loaded() === 4, 'keys, credentials, revocations and certificates')
  t.equal(await client.check(token), 'ok')
  sidecar.child.kill('SIGTERM')
  t.match(await sidecar.ended, { code: 0, signal: null })
  t.equal(sidecar.stderr(), '')
})
