import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { fileProblems } from '../../src/trust/file-problems.ts'
import { makeCertificate } from '../support/certificates.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { makeKeyDirectory } from '../support/keys.ts'

t.test('of good files there is nothing to say, warnings or not', async (t) => {
  const { directory } = await makeKeyDirectory(t)
  writeFileSync(join(directory, 'note.txt'), '')
  const { file } = await makeCredentialsFile(t)
  const revocationsFile = { file: join(directory, 'none.yaml'), required: false }
  const caFile = join(directory, '.ca.pem')
  writeFileSync(caFile, makeCertificate({ commonName: 'authority', authority: true }).cert)
  const upstreams = [{ prefix: '/', url: 'https://127.0.0.1:1', caFile }]
  const files = { keysDirectory: directory, credentialsFile: file, revocationsFile, upstreams }
  t.strictSame(await fileProblems(files), [])
})

t.test('what is not named is not looked into', async (t) => {
  t.strictSame(await fileProblems({ upstreams: [] }), [])
})

t.test('every problem of every file is told, with its setting and its file, and no content', async (t) => {
  const directory = t.testdir({
    'ca.pem': 'canary',
    'credentials.yaml': 'accounts: canary\n',
    'revocations.yaml': '- canary\n',
    keys: {},
  })
  mkdirSync(join(directory, 'keys', 'dir.jwk.json'))
  writeFileSync(join(directory, 'good.pem'), makeCertificate({ commonName: 'sidecar' }).cert)
  writeFileSync(join(directory, 'keys', 'k1.jwk.json'), '"canary"')
  const problems = await fileProblems({
    keysDirectory: join(directory, 'keys'),
    credentialsFile: join(directory, 'credentials.yaml'),
    revocationsFile: { file: join(directory, 'revocations.yaml'), required: true },
    tls: { certFile: join(directory, 'good.pem'), keyFile: join(directory, 'ca.pem') },
    upstreams: [
      { prefix: '/', url: 'http://127.0.0.1:1' },
      { prefix: '/a', url: 'https://127.0.0.1:1', caFile: join(directory, 'missing.pem') },
      { prefix: '/b', url: 'https://127.0.0.1:1', certFile: join(directory, 'ca.pem') },
    ],
  })
  t.match(problems, [
    { path: 'keys.directory', message: /dir\.jwk\.json: is not a file/ },
    { path: 'keys.directory', message: /k1\.jwk\.json/ },
    { path: 'credentials.file', message: /credentials\.yaml/ },
    { path: 'revocations.file', message: /revocations\.yaml/ },
    { path: 'listen.tls.keyFile', message: /ca\.pem: holds no private key/ },
    { path: 'upstreams[1].caFile', message: /missing\.pem: cannot be read/ },
    { path: 'upstreams[2].certFile', message: /ca\.pem: holds no certificate/ },
  ])
  t.notMatch(JSON.stringify(problems), /canary/)
})
