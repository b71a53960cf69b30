import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { readUrlFile } from '../../../src/credentials/postgres/connection.ts'
import { makeCertificate } from '../../support/certificates.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const file = join(await temporaryDirectory(t), 'postgres.url')

async function read(content: string | Buffer, mode = 0o600) {
  await writeFile(file, content)
  await chmod(file, mode)
  return readUrlFile(file)
}

t.test('a label is host, port and database alone', async (t) => {
  const labels = {
    'postgres://me:hush@db.example:6432/accounts': 'db.example:6432/accounts',
    'postgresql://me:hush@db.example/accounts': 'db.example:5432/accounts',
    'postgres://me:hush@[::1]/accounts?application_name=x': '::1:5432/accounts',
    'postgres://me:h%2Fu%40s%23h@db.example/accounts': 'db.example:5432/accounts',
    'postgres://me:hush@/accounts?host=/run/postgresql': '/run/postgresql:5432/accounts',
    'postgres:///accounts?host=/run/postgresql': '/run/postgresql:5432/accounts',
  }
  for (const [url, label] of Object.entries(labels)) {
    t.same(await read(`${url}\n`), { ok: true, value: { url, label }, warnings: [] }, label)
  }
})

t.test('an invalid URL is a problem that repeats no part of it', async (t) => {
  const percent = 'special characters of the password must be percent-encoded'
  const wanted = 'such as postgres://user:password@host:5432/database'
  const contents: [string | Buffer, string][] = [
    ['', `is empty; it must hold a URL ${wanted}`],
    [' \n', `is empty; it must hold a URL ${wanted}`],
    ['hush', `must hold one URL ${wanted}`],
    ['mysql://me:hush@db/accounts', `must hold one URL ${wanted}`],
    ['postgres://me:hush@db/accounts\npostgres://me:hush@db/other', `must hold one URL ${wanted}`],
    ['postgres://me:hush me@db/accounts', `must hold one URL ${wanted}`],
    [Buffer.from([0xff, 0xfe]), `must hold one URL ${wanted}`],
    ['postgres://me:hush?x@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12/hush@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12?hush@db/accounts', `holds no valid URL (${percent})`],
    ['postgres://me:12#hush@db/accounts', `holds no valid URL (${percent})`],
    [
      'postgres://me:hush%ff@db/accounts',
      `holds a URL that cannot be used (${percent}; sslmode=verify-ca needs sslrootcert)`,
    ],
    [
      'postgres://me:hush@db/accounts?sslmode=sometimes',
      'has an sslmode that is none of disable, no-verify, prefer, require, verify-ca, verify-full',
    ],
    [
      'postgres://me:hush@db/accounts?sslmode=verify-full&sslrootcert=/nowhere/hush.pem',
      'names a certificate or key file that cannot be read: there is no such file or directory',
    ],
    [
      'postgres://me:hush@db/accounts?uselibpqcompat=true&sslmode=verify-ca',
      `holds a URL that cannot be used (${percent}; sslmode=verify-ca needs sslrootcert)`,
    ],
  ]
  for (const [content, problem] of contents) {
    t.same(await read(content), { ok: false, problems: [`${file}: ${problem}`] }, problem)
  }
})

t.test('an unreadable file is a problem', async (t) => {
  t.same(await readUrlFile(`${file}.missing`), {
    ok: false,
    problems: [`${file}.missing: cannot be read: there is no such file or directory`],
  })
  t.match(await readUrlFile(join(file, '..')), { ok: false, problems: [/: is not a file$/] })
})

t.test('a world-readable file is worth a warning', async (t) => {
  const { warnings } = { warnings: [], ...(await read('postgres://me:hush@db/accounts', 0o644)) }
  t.same(warnings, [`${file} can be read by every user of this machine`])
})

t.test('TLS is always verified, unless the URL says otherwise', async (t) => {
  const authority = join(await temporaryDirectory(t), 'ca.pem')
  await writeFile(authority, makeCertificate({ commonName: 'ca', authority: true }).cert)
  const modes: [string, string][] = [
    ['sslmode=require', 'sslmode=verify-full'],
    ['application_name=x&sslmode=prefer&y=1', 'application_name=x&sslmode=verify-full&y=1'],
    [`sslmode=verify-ca&sslrootcert=${authority}`, `sslmode=verify-full&sslrootcert=${authority}`],
    ['sslmode=verify-full', 'sslmode=verify-full'],
    ['sslmode=no-verify', 'sslmode=no-verify'],
    ['sslmode=disable', 'sslmode=disable'],
    ['uselibpqcompat=true&sslmode=require', 'uselibpqcompat=true&sslmode=require'],
  ]
  const warned: string[] = []
  const onWarning = ({ message }: Error) => void warned.push(message)
  process.on('warning', onWarning)
  for (const [given, exact] of modes) {
    const base = 'postgres://me:hush@db/accounts?'
    t.match(await read(base + given), { ok: true, value: { url: base + exact } }, given)
  }
  await new Promise((resolve) => setImmediate(resolve))
  process.off('warning', onWarning)
  t.same(warned, [], 'and pg has nothing to warn of')
})
