import { createPrivateKey } from 'node:crypto'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type CertificateFiles, loadCertificateSet } from '../../src/tls/certificates.ts'
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
    return [`${member}File`, path] as const
  })
  const set: CertificateFiles = { name: 'listener', setting: 'the', ...Object.fromEntries(entries) }
  return { directory, set }
}

/** The problems or warnings of such files, without directories. */
async function complaints(t: Test, contents: Contents, now = Date.now()): Promise<string[]> {
  const { directory, set } = await setOf(t, contents)
  const loaded = await loadCertificateSet(set, now)
  const lines = loaded.ok
    ? loaded.warnings
    : loaded.problems.map(({ path, message }) => `${path}: ${message}`)
  return lines.map((line) => line.replaceAll(`${directory}/`, ''))
}

const authority = makeCertificate({ commonName: 'authority', authority: true })
const between = makeCertificate({ commonName: 'between', authority: true, issuer: authority })
const leaf = makeCertificate({ commonName: 'leaf', issuer: between })
const { key } = leaf

t.test('a chain with its key and authorities is loaded unchanged', async (t) => {
  const notAfter = Math.floor(Date.now() / 1000) * 1000 + DAY_MS
  const own = makeCertificate({ commonName: 'own', issuer: between, notAfter })
  const contents = {
    cert: `own:\r\n${own.cert}${between.cert}`,
    key: own.key,
    ca: authority.cert + between.cert,
  }
  const { set } = await setOf(t, contents)
  const loaded = await loadCertificateSet(set, Date.now())
  if (!loaded.ok) {
    throw new Error(JSON.stringify(loaded.problems))
  }
  t.strictSame(loaded.warnings, [])
  for (const member of ['cert', 'key', 'ca'] as const) {
    t.equal(String(loaded.value.options[member]), contents[member])
  }
  t.equal(loaded.value.endsAtSeconds, notAfter / 1000)
  const sec1 = createPrivateKey(key).export({ type: 'sec1', format: 'pem' }).toString()
  t.strictSame(await complaints(t, { cert: leaf.cert, key: sec1 }), [])
})

t.test('all problems of all files are reported without content', async (t) => {
  const encrypted = (type: 'pkcs8' | 'sec1') =>
    createPrivateKey(key)
      .export({ type, format: 'pem', cipher: 'aes-128-cbc', passphrase: 'canary' })
      .toString()
  const broken = leaf.cert.replace(/\n.{10}/, '\nAAAAAAAAAA')
  const [begin, , ...rest] = key.split('\n')
  const weak = makeCertificate({ commonName: 'weak', rsaBits: 512 })
  const cases: [Contents, string[]][] = [
    [
      { cert: 'canary', key: 'canary', ca: key },
      [
        'the.certFile: cert.pem: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)',
        'the.keyFile: key.pem: holds no private key in PEM (-----BEGIN PRIVATE KEY-----) that can be read',
        'the.caFile: ca.pem: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)',
      ],
    ],
    [{ cert: leaf.cert + broken, key }, ['the.certFile: cert.pem: certificate 2 of 2 cannot be read']],
    [{ cert: leaf.cert.slice(0, -30), key }, ['the.certFile: cert.pem: certificate 1 of 1 cannot be read']],
    ...(['pkcs8', 'sec1'] as const).map((type): [Contents, string[]] => [
      { cert: leaf.cert, key: encrypted(type) },
      ['the.keyFile: key.pem: is encrypted; must be a private key without a passphrase'],
    ]),
    [
      { cert: leaf.cert, key: [begin, ...rest].join('\n') },
      ['the.keyFile: key.pem: holds no private key in PEM (-----BEGIN PRIVATE KEY-----) that can be read'],
    ],
    [
      { cert: leaf.cert, key: authority.key },
      ['the.keyFile: key.pem: must hold the private key of the first certificate in cert.pem'],
    ],
    [
      { cert: between.cert + leaf.cert, key },
      ['the.keyFile: key.pem: must hold the private key of the first certificate in cert.pem'],
    ],
    [
      { cert: weak.cert, key: weak.key },
      ['the.certFile: cert.pem: cannot be used for TLS: ERR_SSL_EE_KEY_TOO_SMALL'],
    ],
  ]
  for (const [contents, problems] of cases) {
    t.strictSame(await complaints(t, contents), problems)
  }
})

t.test('expired certificates, short RSA keys and world-readable keys work with a warning', async (t) => {
  const notAfter = Date.UTC(2020, 0, 2)
  const old = makeCertificate({ commonName: 'old', issuer: authority, notAfter })
  const pair = { cert: old.cert, key: old.key }
  t.strictSame(await complaints(t, pair), ['cert.pem: the certificate expired at 2020-01-02T00:00:00.000Z'])
  t.strictSame(await complaints(t, pair, notAfter - 1), [])
  const short = makeCertificate({ commonName: 'short', rsaBits: 1024 })
  // The OpenSSL of newer versions of Node refuses it.
  t.match(
    (await complaints(t, { cert: short.cert, key: short.key }))[0],
    /RSA key of 1024 bits|KEY_TOO_SMALL/,
  )
  const { set } = await setOf(t, { cert: leaf.cert, key })
  chmodSync(set.keyFile ?? '', 0o604)
  const loaded = await loadCertificateSet(set, Date.now())
  t.match(loaded, { ok: true, warnings: [/key\.pem can be read by every user of this machine$/] })
})
