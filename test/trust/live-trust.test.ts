import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/config/load.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import { createLog } from '../../src/ops/log.ts'
import { type LiveTrustOptions, openLiveTrust } from '../../src/trust/live-trust.ts'
import { UnusableTrust } from '../../src/trust/unusable-trust.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey, makeKeyDirectory, writeKey } from '../support/keys.ts'
import { NO_SERVER } from '../support/opened-store.ts'
import { startPostgres } from '../support/postgres.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** Opens what the flags name; the log, and what was told of changes, in the order in which it was. */
async function open(
  t: Test,
  flags: Readonly<Record<string, string>>,
  options: Partial<LiveTrustOptions> = {},
) {
  const loaded = loadConfig({ env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9' }, flags })
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  const log: Record<string, unknown>[] = []
  const told: string[] = []
  const opened = await openLiveTrust(loaded.config, {
    log: createLog('info', { write: (line: string) => void log.push(JSON.parse(line)) }),
    now: Date.now,
    onChange: () => void told.push('changed'),
    onListenerCertificates: () => void told.push('certificates changed'),
    onReload: (subject, result) => void told.push(`${subject} ${result}`),
    onFetch: (result) => void told.push(`fetch ${result}`),
    ...options,
  })
  if (opened.ok) t.teardown(opened.trust.stop)
  // Following files keeps no process alive.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  return { opened, log, told }
}

/** Good files, and the flags that name them. */
async function goodFiles(t: Test) {
  const key = await makeKeyDirectory(t)
  const { file, logins } = await makeCredentialsFile(t)
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const flags = {
    '--keys-directory': key.directory,
    '--credentials-file': file,
    '--revocations-file': revocations,
  }
  return { key, file, logins, revocations, flags }
}

async function openGood(t: Test, ...rest: [] | [Partial<LiveTrustOptions>]) {
  const files = await goodFiles(t)
  const { opened, ...told } = await open(t, files.flags, ...rest)
  if (!opened.ok) throw new Error(JSON.stringify(opened.problems))
  return { ...files, ...told, trust: opened.trust, warnings: opened.warnings }
}

const NAME = { accountId: 'acme', accessKey: 'AK0' }
const TOKEN = { ...NAME, tokenId: 'token-1', expiresAt: 2_000_000_000, issuedAt: 1_000_000_000 }

t.test('what is in files is in force at once, and complete', async (t) => {
  const { trust, key, logins, warnings, told } = await openGood(t)
  t.equal(await trust.whenComplete(), true)
  t.strictSame([...trust.keys().verification.keys()], [key.kid])
  t.equal(trust.refreshKeys, undefined)
  t.match(trust.credentials?.standing('acme', 'AK0'), { inForce: true })
  for (const login of logins) t.equal(await trust.credentials?.authenticate(login), 'accepted')
  t.equal(trust.isRevoked(TOKEN), false)
  t.equal(trust.revocations(), 0)
  t.strictSame(trust.checks(), [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: true },
  ])
  t.strictSame(warnings, [])
  t.strictSame(told, [])
})

t.test('whoever is told of a change finds it in force, and only then is it counted', async (t) => {
  const seen: string[] = []
  const { trust, key, file, revocations } = await openGood(t, {
    onChange: () => {
      const { inForce } = trust.credentials?.standing('acme', 'AK0') ?? { inForce: false }
      const kids = [...trust.keys().verification.keys()].sort().join(' ')
      seen.push(`${kids}; ${inForce}; ${trust.isRevoked(TOKEN)}`)
    },
    onReload: (subject, result) => void seen.push(`${subject} ${result}`),
  })
  const { kid } = key
  writeFileSync(revocations, 'revocations:\n- jti: token-1\n')
  await eventually(() => seen.length === 2, 'the revocation')
  t.equal(trust.revocations(), 1)
  writeKey(key.directory, (await makeKey('ES256', 'zz-public')).publicJwk)
  await eventually(() => seen.length === 4, 'the key')
  writeFileSync(file, 'accounts: []\n')
  await eventually(() => seen.length === 6, 'the credential')
  t.strictSame(seen, [
    `${kid}; true; true`,
    'revocations ok',
    `${kid} zz-public; true; true`,
    'keys ok',
    `${kid} zz-public; false; true`,
    'credentials ok',
  ])
})

t.test('refreshing loads everything anew; once stopped it does nothing', async (t) => {
  const { trust, told, file } = await openGood(t)
  await trust.refresh()
  t.strictSame(told.filter((what) => what !== 'changed').sort(), [
    'credentials ok',
    'keys ok',
    'revocations ok',
  ])
  await trust.stop()
  rmSync(file)
  await trust.refresh()
  t.equal(told.length, 6)
  t.match(trust.credentials?.standing('acme', 'AK0'), { inForce: true }, 'what was in force stays')
})

t.test('every problem of every file is told at once, with the setting that names it', async (t) => {
  const { flags, key, file, revocations } = await goodFiles(t)
  writeFileSync(join(key.directory, `${key.kid}.jwk.json`), '{')
  writeFileSync(file, '')
  rmSync(revocations)
  const upstreams = JSON.stringify([
    { prefix: '/', url: 'https://127.0.0.1:9', caFile: '/nonexistent/ca.pem' },
  ])
  const { opened, told } = await open(t, { ...flags, '--upstreams': upstreams })
  t.notOk(opened.ok)
  t.strictSame(opened.ok || opened.problems.map(({ path }) => path), [
    'keys.directory',
    'credentials.file',
    'revocations.file',
    'upstreams[0].caFile',
  ])
  t.strictSame(told, [])
})

t.test('a file of certificates alone is enough to be refused', async (t) => {
  const { flags } = await goodFiles(t)
  const upstreams = JSON.stringify([
    { prefix: '/', url: 'https://127.0.0.1:9', caFile: '/nonexistent/ca.pem' },
  ])
  const { opened } = await open(t, { ...flags, '--upstreams': upstreams })
  t.match(opened, { ok: false, problems: [{ path: 'upstreams[0].caFile' }] })
})

t.test('what works but should be mended is told from the start', async (t) => {
  const { flags, key } = await goodFiles(t)
  chmodSync(join(key.directory, `${key.kid}.jwk.json`), 0o644)
  const { opened } = await open(t, flags)
  t.match(opened, { ok: true, warnings: [/everyone on this machine can read/] })
})

t.test('a login that cannot be checked is logged', async (t) => {
  let broken = false
  const now = () => {
    if (broken) throw new Error('the clock is broken')
    return Date.now()
  }
  const { trust, logins, log } = await openGood(t, { now })
  broken = true
  for (const login of logins) t.equal(await trust.credentials?.authenticate(login), 'unavailable')
  broken = false
  t.match(log, [{ msg: 'a login could not be checked', err: { message: 'the clock is broken' } }])
})

t.test('another issuer that is away is waited for, until it is there no more to wait for', async (t) => {
  const { opened, told } = await open(t, { '--keys-jwks-url': 'http://127.0.0.1:1/jwks.json' })
  if (!opened.ok) throw new Error('an issuer may be away')
  const { trust } = opened
  t.equal(trust.credentials, undefined)
  t.equal(trust.keys().verification.size, 0)
  t.match(trust.checks(), [{ name: 'keys', ok: false, loaded: false }])
  t.match(trust.remoteKeys?.(), { loaded: false })
  await eventually(() => told.includes('fetch failed'), 'a fetch')
  t.equal(await trust.refreshKeys?.('a-kid'), false)
  await trust.refresh()
  t.notOk(told.includes('fetch ok'))
  const complete = trust.whenComplete()
  await trust.stop()
  t.equal(await complete, false)
})

t.test('a database that is away is waited for: no logins, no tokens, not ready', async (t) => {
  const key = await makeKeyDirectory(t)
  const urlFile = join(await temporaryDirectory(t), 'url')
  writeFileSync(urlFile, 'postgres://sidecar@127.0.0.1:1/sidecar', { mode: 0o600 })
  const { opened, log, told } = await open(t, {
    '--keys-directory': key.directory,
    '--credentials-postgres-url-file': urlFile,
  })
  if (!opened.ok) throw new Error('a database may be away')
  const { trust } = opened
  const complete = trust.whenComplete()
  await eventually(
    () => log.some(({ msg }) => msg === 'waiting for the credentials database'),
    'the first try',
  )
  t.equal(await trust.credentials?.authenticate({ ...NAME, secret: 'x' }), 'unavailable')
  t.equal(trust.credentials?.hasAccount('acme'), false)
  t.strictSame(trust.credentials?.standing('acme', 'AK0'), { inForce: false })
  t.equal(trust.isRevoked(TOKEN), false)
  t.equal(trust.revocations(), 0)
  t.strictSame(trust.checks(), [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: false },
  ])
  await trust.refresh()
  t.notOk(told.some((what) => what.startsWith('credentials')))
  await trust.stop()
  t.equal(await complete, false)
})

t.test('a database brings credentials and revocations, beside those of the file', async (t) => {
  const server = await startPostgres(t)
  if (server === undefined) {
    t.pass(NO_SERVER)
    return
  }
  const { urlFile, sql } = await server.createDatabase('tables')
  chmodSync(urlFile, 0o644)
  const key = await makeKeyDirectory(t)
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations:\n- jti: token-2\n')
  const insert =
    'INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ($1, $2, $3)'
  await sql(insert, ['acme', 'AK0', await hashSecret('hush', 'sha256')])
  let now: () => number = Date.now
  const { opened, log, told } = await open(
    t,
    {
      '--keys-directory': key.directory,
      '--credentials-postgres-url-file': urlFile,
      '--revocations-file': revocations,
    },
    { now: () => now() },
  )
  if (!opened.ok) throw new Error(JSON.stringify(opened.problems))
  const { trust } = opened
  t.equal(await trust.whenComplete(), true)
  t.ok(log.some(({ level, msg }) => level === 40 && /every user of this machine/.test(String(msg))))
  t.strictSame(trust.checks(), [
    { name: 'keys', ok: true },
    { name: 'credentials', ok: true, state: 'current' },
  ])
  t.match(trust.credentials?.standing('acme', 'AK0'), { inForce: true })
  t.equal(trust.credentials?.hasAccount('acme'), true)
  t.equal(await trust.credentials?.authenticate({ ...NAME, secret: 'hush' }), 'accepted')
  t.equal(await trust.credentials?.authenticate({ ...NAME, secret: 'other' }), 'rejected')

  const before = told.length
  await sql('INSERT INTO storage_auth.revocations (jti) VALUES ($1)', ['token-1'])
  await eventually(() => trust.revocations() === 2, 'the revocation')
  t.strictSame(told.slice(before), ['changed', 'credentials ok'])
  const revoked = ['token-1', 'token-2', 'token-3'].map((tokenId) => trust.isRevoked({ ...TOKEN, tokenId }))
  t.strictSame(revoked, [true, true, false])
  await trust.refresh()
  t.equal(trust.revocations(), 2)

  now = () => {
    throw new Error('the clock is broken')
  }
  t.equal(await trust.credentials?.authenticate({ ...NAME, secret: 'hush' }), 'unavailable')
  t.match(log.at(-1), { msg: 'a login could not be checked', err: { message: 'the clock is broken' } })
  now = Date.now
  await trust.stop()
  t.match(trust.credentials?.standing('acme', 'AK0'), { inForce: true }, 'what was in force stays')
})

t.test('a database that cannot be named is not waited for', async (t) => {
  const key = await makeKeyDirectory(t)
  const { opened } = await open(t, {
    '--keys-directory': key.directory,
    '--credentials-postgres-url-file': '/nonexistent/url',
  })
  if (!opened.ok) throw new Error('it is found out later')
  await t.rejects(opened.trust.whenComplete(), { constructor: UnusableTrust, message: /\/nonexistent\/url/ })
  await opened.trust.stop()
})
