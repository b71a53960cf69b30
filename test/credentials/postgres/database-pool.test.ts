import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import t from 'tap'
import { databaseFailure, readUrlFile } from '../../../src/credentials/postgres/database-pool.ts'
import { makeCertificate } from '../../support/certificates.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const file = join(await temporaryDirectory(t), 'postgres.url')

async function read(content: string | Buffer, mode = 0o600) {
  await writeFile(file, content)
  await chmod(file, mode)
  return readUrlFile(file)
}

t.test('a label has only host, port and database', async (t) => {
  const labels = {
    'postgres://me:hush@db.example:6432/accounts?sslmode=verify-full': 'db.example:6432/accounts',
    'postgresql://me:hush@db.example/accounts?sslmode=disable': 'db.example:5432/accounts',
    'postgres://me:hush@[::1]/accounts?application_name=x': '::1:5432/accounts',
    'postgres://me:h%2Fu%40s%23h@127.0.0.9/accounts': '127.0.0.9:5432/accounts',
    'postgres://me:hush@/accounts?host=/run/postgresql': '/run/postgresql:5432/accounts',
    'postgres:///accounts?host=/run/postgresql': '/run/postgresql:5432/accounts',
  }
  for (const [url, label] of Object.entries(labels)) {
    t.same(await read(`${url}\n`), { ok: true, value: { url, label }, warnings: [] }, label)
  }
})

t.test('an invalid URL is a problem that does not echo the URL', async (t) => {
  const percent = 'special characters of the password must be percent-encoded'
  const example = 'such as postgres://user:password@host:5432/database'
  const unusable = `holds a URL that cannot be used (${percent}; the files that it names must be readable)`
  const contents: [string | Buffer, string][] = [
    ['', `must hold one URL ${example}`],
    ['hush', `must hold one URL ${example}`],
    ['mysql://me:hush@db/accounts', `must hold one URL ${example}`],
    ['postgres://me:hush@db/accounts\npostgres://me:hush@db/other', `must hold one URL ${example}`],
    ['postgres://me:hush me@db/accounts', `must hold one URL ${example}`],
    [Buffer.from([0xff, 0xfe]), `must hold one URL ${example}`],
    ['postgres://me:hush?x@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12/hush@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12?hush@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12#hush@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:hush%ff@db/accounts', unusable],
    ['postgres://me:hush@db/accounts?sslmode=verify-full&sslrootcert=/nowhere/hush.pem', unusable],
  ]
  const remote = 'names a remote host: it needs ?sslmode=verify-full, or ?sslmode=disable to do without TLS'
  for (const host of ['db', 'localhost.example', '192.0.2.1', '[2001:db8::1]', '0.0.0.0']) {
    for (const mode of [
      '',
      '?ssl=true',
      '?sslmode=prefer',
      '?sslmode=sometimes',
      '?sslmode=disable&sslmode=no-verify',
    ]) {
      contents.push([`postgres://me:hush@${host}/accounts${mode}`, remote])
    }
  }
  contents.push(['postgres://me:hush@localhost/accounts?host=db', remote])
  for (const [content, problem] of contents) {
    t.same(await read(content), { ok: false, problems: [`${file}: ${problem}`] }, problem)
  }
})

t.test('a world-readable file gets a warning', async (t) => {
  const { warnings } = { warnings: [], ...(await read('postgres://me:hush@localhost/accounts', 0o644)) }
  t.same(warnings, [`${file} can be read by every user of this machine`])
})

t.test('TLS is always verified unless the URL disables it', async (t) => {
  const authority = join(await temporaryDirectory(t), 'ca.pem')
  await writeFile(authority, makeCertificate({ commonName: 'ca', authority: true }).cert)
  const modes: [string, string][] = [
    ['sslmode=require', 'sslmode=verify-full'],
    ['application_name=x&sslmode=prefer&y=1', 'application_name=x&sslmode=verify-full&y=1'],
    [`sslmode=verify-ca&sslrootcert=${authority}`, `sslmode=verify-full&sslrootcert=${authority}`],
    ['sslmode=verify-full', 'sslmode=verify-full'],
    ['sslmode=no-verify', 'sslmode=no-verify'],
    ['sslmode=disable', 'sslmode=disable'],
  ]
  const warned: string[] = []
  const onWarning = ({ message }: Error) => {
    warned.push(message)
  }
  process.on('warning', onWarning)
  for (const [given, exact] of modes) {
    const base = 'postgres://me:hush@localhost/accounts?'
    t.match(await read(base + given), { ok: true, value: { url: base + exact } }, given)
  }
  await new Promise((resolve) => setImmediate(resolve))
  process.off('warning', onWarning)
  t.same(warned, [], 'and pg has nothing to warn of')
})

function reported(code: string, message = 'm') {
  const error = new pg.DatabaseError(message, message.length, 'error')
  error.code = code
  error.detail = 'Failing row contains (hush).'
  return error
}

const coded = (code: string, message = 'hush') => Object.assign(new Error(message), { code })

t.test('each failure is reported with its remedy and without its details', async (t) => {
  const faults: [unknown, string, string | RegExp][] = [
    [coded('ECONNREFUSED'), 'down', 'the connection failed (ECONNREFUSED)'],
    [new Error('Connection terminated'), 'down', 'the connection failed (Connection terminated)'],
    ['hush', 'down', 'it failed for an unknown reason'],
    [reported('53300', 'too many'), 'down', 'it reports: too many (53300)'],
    [reported('57014', 'canceled'), 'timeout', 'it reports: canceled (57014)'],
    [coded('ETIMEDOUT'), 'timeout', 'it does not answer in time'],
    [new Error('Query read timeout'), 'timeout', 'it does not answer in time'],
    [
      reported('42P01'),
      'unusable',
      /^its tables are missing: run `storage-auth-sidecar credentials migrate /,
    ],
    [reported('28P01'), 'unusable', 'it refuses this user or the password'],
    [reported('P0001', 'its encoding must be UTF8'), 'unusable', 'its encoding must be UTF8'],
    [new Error('The server does not support SSL connections'), 'unusable', 'it does not offer TLS'],
    [coded('DEPTH_ZERO_SELF_SIGNED_CERT'), 'unusable', /certificate or protocol is not accepted \(DEPTH_/],
    [coded('ERR_SSL_WRONG_VERSION_NUMBER'), 'unusable', /is not accepted \(ERR_SSL_/],
  ]
  for (const [thrown, kind, message] of faults) {
    const failure = databaseFailure(thrown)
    t.match(failure, { kind, message })
    t.notMatch(failure.message, /hush/)
  }
})
