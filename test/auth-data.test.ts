import { EventEmitter } from 'node:events'
import { chmodSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { type AuthDataEvents, checkFiles, openAuthData } from '../src/auth-data.ts'
import { loadConfig } from '../src/config/load.ts'
import { createLog } from '../src/ops/log.ts'
import { makeCertificate } from './support/certificates.ts'
import { makeCredentialsFile } from './support/credentials.ts'
import { eventually } from './support/eventually.ts'
import { makeKey, makeKeyDirectory, writeKey } from './support/keys.ts'
import { temporaryDirectory } from './support/temporary-directory.ts'

type Flags = Readonly<Record<string, string>>

function configOf(flags: Flags) {
  const loaded = loadConfig({ env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9' }, flags })
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  return loaded.config
}

/** Opens what the flags name. */
async function open(t: Test, flags: Flags) {
  const events = new EventEmitter<AuthDataEvents>()
  const log: Record<string, unknown>[] = []
  const alive = setInterval(() => {}, 1000) // polling keeps no process alive
  t.teardown(() => clearInterval(alive))
  const authData = await openAuthData(configOf(flags), {
    log: createLog('info', { write: (line: string) => void log.push(JSON.parse(line)) }),
    now: Date.now,
    events,
  })
  authData.start()
  t.teardown(authData.stop)
  return { authData, events, log }
}

const TOKEN = { accountId: 'acme', accessKey: 'AK0', tokenId: 'token-1', expiresAt: 2e9, issuedAt: 1e9 }

t.test('a change is active before its event, and counted after it', async (t) => {
  const key = await makeKeyDirectory(t)
  const { file } = await makeCredentialsFile(t)
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const flags = {
    '--keys-directory': key.directory,
    '--credentials-file': file,
    '--revocations-file': revocations,
  }
  const seen: string[] = []
  const { authData, events } = await open(t, flags)
  events.on('change', () => {
    const isKnown = authData.credentials?.hasAccount('acme')
    seen.push(`${authData.keys().verification.size} keys; ${isKnown}; ${authData.isRevoked(TOKEN)}`)
  })
  events.on('reload', (subject, result) => void seen.push(`${subject} ${result}`))
  writeFileSync(revocations, 'revocations:\n- jti: token-1\n')
  await eventually(() => seen.length === 2, 'the revocation')
  writeKey(key.directory, (await makeKey('ES256', 'zz-public')).publicJwk)
  await eventually(() => seen.length === 4, 'the key')
  writeFileSync(file, 'accounts: []\n')
  await eventually(() => seen.length === 6, 'the credential')
  t.strictSame(seen, [
    ...['1 keys; true; true', 'revocations ok'],
    ...['2 keys; true; true', 'keys ok'],
    ...['2 keys; false; true', 'credentials ok'],
  ])
  t.equal(authData.revocations(), 1)
  await authData.reload()
  t.strictSame(
    seen
      .slice(6)
      .filter((line) => line.endsWith('ok'))
      .sort(),
    ['credentials ok', 'keys ok', 'revocations ok'],
  )
  await authData.stop()
  rmSync(revocations)
  const { length } = seen
  await authData.reload()
  t.equal(seen.length, length, 'nothing happens once stopped')
  t.equal(authData.isRevoked(TOKEN), true)
})

t.test('all problems of all files are reported with their setting and without content', async (t) => {
  const directory = t.testdir({
    'ca.pem': 'canary',
    'credentials.yaml': 'accounts: canary\n',
    'revocations.yaml': '- canary\n',
    keys: { 'k1.jwk.json': '"canary"' },
  })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('keys/dir.jwk.json'))
  writeFileSync(path('good.pem'), makeCertificate({ commonName: 'sidecar' }).cert)
  const upstreams = [
    { prefix: '/', url: 'http://127.0.0.1:1' },
    { prefix: '/a', url: 'https://127.0.0.1:1', caFile: path('missing.pem') },
  ]
  const flags = {
    '--keys-directory': path('keys'),
    '--credentials-file': path('credentials.yaml'),
    '--revocations-file': path('revocations.yaml'),
    '--listen-tls-cert-file': path('good.pem'),
    '--listen-tls-key-file': path('ca.pem'),
    '--upstreams': JSON.stringify(upstreams),
  }
  const { problems } = await checkFiles(configOf(flags))
  t.match(problems, [
    { path: 'keys.directory', message: /dir\.jwk\.json: is not a file/ },
    { path: 'keys.directory', message: /k1\.jwk\.json/ },
    { path: 'credentials.file', message: /credentials\.yaml/ },
    { path: 'revocations.file', message: /revocations\.yaml/ },
    { path: 'listen.tls.keyFile', message: /ca\.pem: holds no private key/ },
    { path: 'upstreams[1].caFile', message: /missing\.pem: cannot be read/ },
  ])
  t.notMatch(JSON.stringify(problems), /canary/)
  const database = configOf({
    '--keys-directory': (await makeKeyDirectory(t)).directory,
    '--credentials-postgres-url-file': path('none'),
  })
  t.match(await checkFiles(database), {
    problems: [{ path: 'credentials.postgres.urlFile', message: /none: cannot/ }],
  })
})

t.test('with assertions a directory without a key for upstreams is a bad version', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  const flags = { '--keys-directory': directory, '--credentials-file': (await makeCredentialsFile(t)).file }
  const results: string[] = []
  const { authData, events, log } = await open(t, { ...flags, '--identity-assertion-enabled': 'true' })
  events.on('reload', (subject, result) => void results.push(`${subject} ${result}`))
  writeFileSync(join(directory, 'active'), 'secret')
  writeKey(directory, (await makeKey('HS256', 'secret')).privateJwk)
  await eventually(() => results.length === 1, 'the reload')
  t.strictSame(results, ['keys failed'])
  t.equal(authData.keys().signing?.kid, kid)
  t.match(log.at(-1), { problems: [/: identity\.assertion\.enabled needs a private key here/] })
})

t.test('what decides on access and every user can write is a warning', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  const { file } = await makeCredentialsFile(t)
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const settings = configOf({
    '--keys-directory': directory,
    '--credentials-file': file,
    '--revocations-file': revocations,
  })
  t.strictSame(await checkFiles(settings), { problems: [], warnings: [] })
  const writable = [directory, join(directory, `${kid}.jwk.json`), file, dirname(revocations)]
  for (const path of writable) chmodSync(path, statSync(path).mode | 0o002)
  t.strictSame(
    (await checkFiles(settings)).warnings,
    writable.map((path) => `${path} can be written by every user of this machine`),
  )
  chmodSync(dirname(revocations), 0o1777)
  t.equal((await checkFiles(settings)).warnings.length, 3, 'others can replace nothing there')
})
