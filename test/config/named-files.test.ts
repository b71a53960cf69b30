import t from 'tap'
import { namedFiles } from '../../src/config/named-files.ts'
import { accepted, load } from './support.ts'

const FLAGS = { '--keys-directory': '/k', '--credentials-file': '/c' }
const REVOCATIONS = { file: '/etc/storage-auth-sidecar/revocations.yaml', required: false }
const UPSTREAM = { prefix: '/', url: 'http://127.0.0.1:9000' }

/** The files that settings with a mistake name all the same. */
function filesOf(sources: Parameters<typeof load>[0]) {
  const loaded = load({ ...sources, flags: { ...FLAGS, ...sources.flags } })
  if (loaded.ok) throw new Error('these settings were to have a mistake')
  return loaded.files
}

t.test('good settings name every file', async (t) => {
  const { config } = accepted({ flags: FLAGS })
  t.strictSame(namedFiles(config), {
    keysDirectory: '/k',
    credentialsFile: '/c',
    revocationsFile: REVOCATIONS,
    upstreams: [UPSTREAM],
  })
})

t.test('certificates of the data listener are named', async (t) => {
  const { config } = accepted({
    flags: { ...FLAGS, '--listen-tls-cert-file': '/c.pem', '--listen-tls-key-file': '/k.pem' },
  })
  t.match(namedFiles(config), { tls: { certFile: '/c.pem', keyFile: '/k.pem' } })
})

t.test('a mistake elsewhere leaves the files known', async (t) => {
  t.strictSame(filesOf({ flags: { '--listen-port': 'x' } }), {
    keysDirectory: '/k',
    credentialsFile: '/c',
    revocationsFile: REVOCATIONS,
    upstreams: [UPSTREAM],
  })
})

t.test('no default stands in for a file whose setting is broken', async (t) => {
  t.strictSame(filesOf({ flags: { '--keys-directory': '' } }), {
    credentialsFile: '/c',
    revocationsFile: REVOCATIONS,
    upstreams: [UPSTREAM],
  })
  const postgres = { '--credentials-postgres-pool-size': '0' }
  t.strictSame(filesOf({ flags: { ...postgres, '--credentials-file': '/c' } }), {
    keysDirectory: '/k',
    revocationsFile: REVOCATIONS,
    upstreams: [UPSTREAM],
  })
})

t.test('nor does one stand in for the file of revocations', async (t) => {
  t.strictSame(filesOf({ flags: { '--revocations-file': '' } }), {
    keysDirectory: '/k',
    credentialsFile: '/c',
    upstreams: [UPSTREAM],
  })
})

t.test('keys and credentials that come from elsewhere are no files', async (t) => {
  const { config } = accepted({ flags: { '--keys-jwks-url': 'https://issuer.example/jwks.json' } })
  t.strictSame(namedFiles(config), { revocationsFile: REVOCATIONS, upstreams: [UPSTREAM] })
})

t.test('a settings file that cannot be read names nothing', async (t) => {
  t.strictSame(filesOf({ yaml: '{' }), { upstreams: [] })
})
