import { execFileSync } from 'node:child_process'
import { createPrivateKey } from 'node:crypto'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadCertificates } from '../../src/certificates/certificate-files.ts'
import type { CertificateSet } from '../../src/certificates/certificate-sets.ts'
import { makeCertificate } from '../support/certificates.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const DAY_MS = 86_400_000

interface Contents {
  readonly cert?: string
  readonly key?: string
  readonly ca?: string
}

/** Writes the files of a set. */
async function setOf(t: Test, contents: Contents) {
  const directory = await temporaryDirectory(t)
  const entries = Object.entries(contents).map(([member, text]: [string, string]) => {
    const path = join(directory, `${member}.pem`)
    writeFileSync(path, text, { mode: 0o600 })
    return [member, { setting: `the.${member}`, path }] as const
  })
  const set: CertificateSet = { name: 'listener', ...Object.fromEntries(entries) }
  return { directory, set }
}

/** What is wrong with files of that content, each as `setting: message` without directories. */
async function problemsOf(t: Test, contents: Contents) {
  const { directory, set } = await setOf(t, contents)
  const loaded = await loadCertificates(set, Date.now())
  if (loaded.ok) return []
  return loaded.problems.map(({ path, message, origin }) => {
    t.equal(origin, 'default')
    return `${path}: ${message.replaceAll(`${directory}/`, '')}`
  })
}

async function warningsOf(t: Test, contents: Contents, now = Date.now()): Promise<string[]> {
  const { directory, set } = await setOf(t, contents)
  const loaded = await loadCertificates(set, now)
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  return loaded.warnings.map((warning) => warning.replaceAll(`${directory}/`, ''))
}

const authority = makeCertificate({ commonName: 'authority', authority: true })
const between = makeCertificate({ commonName: 'between', authority: true, issuer: authority })
const leaf = makeCertificate({ commonName: 'leaf', issuer: between })
const { key } = leaf

t.test('a chain with its key and authorities can be used as it stands', async (t) => {
  const notAfter = Math.floor(Date.now() / 1000) * 1000 + DAY_MS
  const own = makeCertificate({ commonName: 'own', issuer: between, notAfter })
  const contents = {
    cert: `own:\r\n${own.cert}${between.cert}`,
    key: own.key,
    ca: authority.cert + between.cert,
  }
  const { set } = await setOf(t, contents)
  const loaded = await loadCertificates(set, Date.now())
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  t.strictSame(loaded.warnings, [])
  t.strictSame(
    Object.fromEntries(
      Object.entries(loaded.value.material).map(([name, bytes]) => [name, bytes.toString()]),
    ),
    contents,
  )
  t.equal(loaded.value.expiresAt, notAfter)
})

t.test('authorities alone are enough, and expire for nobody', async (t) => {
  const { set } = await setOf(t, { ca: authority.cert })
  const loaded = await loadCertificates(set, Date.now())
  t.match(loaded, { ok: true, value: { expiresAt: undefined } })
})

t.test('keys in any of the usual forms are taken', async (t) => {
  const sec1 = createPrivateKey(key).export({ type: 'sec1', format: 'pem' }).toString()
  t.match(sec1, /BEGIN EC PRIVATE KEY/)
  t.strictSame(await problemsOf(t, { cert: leaf.cert, key: sec1 }), [])
})

t.test('every problem of every file is told', async (t) => {
  t.strictSame(await problemsOf(t, { cert: 'canary', key: 'canary', ca: key }), [
    'the.cert: cert.pem: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)',
    'the.ca: ca.pem: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)',
    'the.key: key.pem: holds no private key in PEM (-----BEGIN PRIVATE KEY-----)',
  ])
})

t.test('a certificate that cannot be read is told by its place', async (t) => {
  const broken = leaf.cert.replace(/\n.{10}/, '\nAAAAAAAAAA')
  t.strictSame(await problemsOf(t, { cert: leaf.cert + broken, key }), [
    'the.cert: cert.pem: certificate 2 of 2 cannot be read',
  ])
  t.strictSame(await problemsOf(t, { cert: leaf.cert.slice(0, -30), key }), [
    'the.cert: cert.pem: certificate 1 of 1 cannot be read',
  ])
})

t.test('a key that cannot be read, or only with a passphrase, is told', async (t) => {
  const encrypted = (type: 'pkcs8' | 'sec1') =>
    createPrivateKey(key)
      .export({ type, format: 'pem', cipher: 'aes-128-cbc', passphrase: 'canary' })
      .toString()
  for (const text of [encrypted('pkcs8'), encrypted('sec1')]) {
    t.strictSame(await problemsOf(t, { cert: leaf.cert, key: text }), [
      'the.key: key.pem: is encrypted; wants a private key without a passphrase',
    ])
  }
  const [begin, , ...rest] = key.split('\n')
  t.strictSame(await problemsOf(t, { cert: leaf.cert, key: [begin, ...rest].join('\n') }), [
    'the.key: key.pem: holds a private key that cannot be read',
  ])
})

t.test('a key of another certificate is told, and one that stands at the wrong place', async (t) => {
  t.strictSame(await problemsOf(t, { cert: leaf.cert, key: authority.key }), [
    'the.key: key.pem: wants the private key of the first certificate in cert.pem',
  ])
  t.strictSame(await problemsOf(t, { cert: between.cert + leaf.cert, key }), [
    'the.cert: cert.pem: wants the certificate of the private key first, and then those that signed it',
  ])
})

t.test('what OpenSSL will not use is told by the name of its reason', async (t) => {
  const weak = makeCertificate({ commonName: 'weak', rsaBits: 512 })
  t.strictSame(await problemsOf(t, { cert: weak.cert, key: weak.key }), [
    'the.cert: cert.pem: cannot be used for TLS: ERR_SSL_EE_KEY_TOO_SMALL',
  ])
})

t.test('a file that cannot be read, or need not end, is told', async (t) => {
  const directory = await temporaryDirectory(t)
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  writeFileSync(path('large'), Buffer.alloc(1_048_577))
  for (const [name, message] of [
    ['missing', /missing: cannot be read: there is no such file or directory$/],
    ['directory', /directory: is not a file$/],
    ['pipe', /pipe: is not a file$/],
    ['large', /large: is larger than 1048576 bytes$/],
  ] as const) {
    const loaded = await loadCertificates({ name: 'a', ca: { setting: 's', path: path(name) } }, 0)
    t.match(loaded, { ok: false, problems: [{ path: 's', message }] })
  }
})

t.test('certificates that are out of their time work, with a warning', async (t) => {
  const notAfter = Date.UTC(2020, 0, 2)
  const old = makeCertificate({ commonName: 'old', issuer: authority, notAfter })
  const pair = { cert: old.cert + authority.cert, key: old.key }
  t.strictSame(await warningsOf(t, pair), ['cert.pem: the certificate expired at 2020-01-02T00:00:00.000Z'])
  t.strictSame(await warningsOf(t, { cert: old.cert, key: old.key }, notAfter - 1), [])
  const early = await warningsOf(t, { cert: old.cert, key: old.key }, Date.UTC(2019, 0, 1))
  t.strictSame(early, ['cert.pem: the certificate is not valid before 2020-01-01T00:00:00.000Z'])
  t.match(await warningsOf(t, pair, Date.now() + 2 * DAY_MS), [
    /the certificate expired/,
    /certificate 2 expired/,
  ])
})

t.test('authorities are warned of once the last one has expired', async (t) => {
  const old = makeCertificate({ commonName: 'old', authority: true, notAfter: 1_600_000_000_000 })
  t.strictSame(await warningsOf(t, { ca: old.cert + authority.cert }), [])
  t.strictSame(await warningsOf(t, { ca: old.cert }), ['ca.pem: every authority in it has expired'])
})

t.test('a chain in disorder works, with a warning', async (t) => {
  const said = 'cert.pem: each certificate should be followed by the one that signed it'
  t.strictSame(await warningsOf(t, { cert: leaf.cert + authority.cert + between.cert, key }), [said])
  t.strictSame(await warningsOf(t, { cert: leaf.cert + between.cert + authority.cert, key }), [])
})

t.test('a private key for everybody to read works, with a warning', async (t) => {
  const { set } = await setOf(t, { cert: leaf.cert, key })
  chmodSync(set.key?.path ?? '', 0o604)
  const loaded = await loadCertificates(set, Date.now())
  t.match(loaded, { ok: true, warnings: [/key\.pem: a private key that everyone on this machine can read$/] })
})
