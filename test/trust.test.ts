import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { loadTrust } from '../src/trust.ts'
import { makeCredentialsFile } from './support/credentials.ts'
import { makeKeyDirectory } from './support/keys.ts'

const options = { now: Date.now }

t.test('keys and credentials are loaded, and what should be mended is said', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  writeFileSync(join(directory, 'note.txt'), '')
  const { file, logins } = await makeCredentialsFile(t)
  const upstreams = [{ prefix: '/', url: 'http://127.0.0.1:1' }]
  const trust = await loadTrust({ keysDirectory: directory, credentialsFile: file, upstreams }, options)
  if (!trust.ok) throw new Error('it was to be usable')
  t.equal(trust.ring?.signing?.kid, kid)
  const [login] = logins
  t.equal(login && (await trust.store?.authenticate(login)), 'accepted')
  t.match(trust.warnings, [/note\.txt: passed over/])
})

t.test('what is not named is not loaded', async (t) => {
  t.strictSame(await loadTrust({ upstreams: [] }, options), {
    ok: true,
    ring: undefined,
    store: undefined,
    warnings: [],
  })
})

t.test('every problem of every file is told, with its setting and its file, and no content', async (t) => {
  const directory = t.testdir({ 'ca.pem': 'canary', 'credentials.yaml': 'accounts: canary\n', keys: {} })
  mkdirSync(join(directory, 'keys', 'dir.jwk.json'))
  writeFileSync(join(directory, 'keys', 'k1.jwk.json'), '"canary"')
  const trust = await loadTrust(
    {
      keysDirectory: join(directory, 'keys'),
      credentialsFile: join(directory, 'credentials.yaml'),
      upstreams: [
        { prefix: '/', url: 'http://127.0.0.1:1' },
        { prefix: '/a', url: 'https://127.0.0.1:1', caFile: join(directory, 'missing.pem') },
        { prefix: '/b', url: 'https://127.0.0.1:1', certFile: join(directory, 'ca.pem') },
      ],
    },
    options,
  )
  if (trust.ok) throw new Error('it was not to be usable')
  t.match(trust.problems, [
    { path: 'keys.directory', message: /dir\.jwk\.json: is not a file/ },
    { path: 'keys.directory', message: /k1\.jwk\.json/ },
    { path: 'credentials.file', message: /credentials\.yaml/ },
    { path: 'upstreams[1]', message: /missing\.pem/ },
    { path: 'upstreams[2]', message: /\w/ },
  ])
  t.notMatch(JSON.stringify(trust.problems), /canary/)
})
