import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { loadConfig } from '../../src/config/load.ts'
import { readUrlFile } from '../../src/credentials/postgres/url.ts'
import { readRegularFile, readRegularFileSync } from '../../src/reload/files.ts'
import { fileProblems } from '../../src/trust/file-problems.ts'

/** What both ways of reading say: the bytes, or the problem or its code. */
async function both(path: string, mostBytes = 1000) {
  const read = await readRegularFile(path, mostBytes)
  try {
    const bytes = readRegularFileSync(path, mostBytes)
    return read.ok && read.bytes.equals(bytes) ? bytes.toString() : 'they differ'
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : error
    return read.ok ? 'they differ' : [read.problem, read.missing, code]
  }
}

t.test('a file is read whole, behind links too, with what is known of it', async (t) => {
  const directory = t.testdir({ file: 'abc', empty: '' })
  const path = (name: string) => join(directory, name)
  symlinkSync('file', path('link'))
  chmodSync(path('file'), 0o640)
  utimesSync(path('file'), 5, 7.25)
  t.match(await readRegularFile(path('link'), 3), { ok: true, mode: 0o100640, modifiedAt: 7250 })
  for (const [name, content] of [
    ['file', 'abc'],
    ['link', 'abc'],
    ['empty', ''],
  ] as const) {
    t.equal(await both(path(name), 3), content)
  }
  t.equal(await both(path('empty'), 0), '')
})

t.test('what is no file, or not one of that size, is told and not waited for', async (t) => {
  const directory = t.testdir({ file: 'abcd' })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  t.same(await both(path('file'), 3), ['is larger than 3 bytes', false, 'EFBIG'])
  t.same(await both(path('directory')), ['is not a file', false, 'EISDIR'])
  t.same(await both(path('pipe')), ['is not a file', false, 'ENOTREGULAR'])
  t.same(await both('/dev/zero'), ['is not a file', false, 'ENOTREGULAR'])
  const missing = 'cannot be read: there is no such file or directory'
  t.same(await both(path('none')), [missing, true, 'ENOENT'])
  t.same(await both(path('file/below')), [missing, false, 'ENOTDIR'])
})

t.test('a file that says it is empty is read to its end, and no further than is allowed', async (t) => {
  // The kernel's files say so, and so does one that grows after it was looked at.
  const whole = readFileSync('/proc/self/limits')
  const short = await readRegularFile('/proc/self/limits', whole.length)
  t.ok(short.ok && short.bytes.equals(whole))
  t.same(await both('/proc/self/limits', whole.length - 1), [
    `is larger than ${whole.length - 1} bytes`,
    false,
    'EFBIG',
  ])
  const kallsyms = await both('/proc/kallsyms', 200_000)
  t.ok(typeof kallsyms === 'string' || kallsyms[2] === 'EFBIG', 'many pieces')
})

t.test('a file that grows while it is read is not cut', async (t) => {
  const file = join(t.testdir({ file: 'a'.repeat(100_000) }), 'file')
  const reading = readRegularFile(file, 1_000_000)
  appendFileSync(file, 'b'.repeat(200_000))
  const read = await reading
  t.ok(read.ok && [100_000, 300_000].includes(read.bytes.length), 'one version or the other')
})

t.test(
  'a pipe in the place of any file that the settings name is a problem, and holds nothing up',
  async (t) => {
    const pipe = join(t.testdir({ keys: {} }), 'pipe')
    execFileSync('mkfifo', [pipe])
    const keysDirectory = join(pipe, '..', 'keys')
    symlinkSync(pipe, join(keysDirectory, 'k.jwk.json'))
    symlinkSync(pipe, join(keysDirectory, 'active'))
    const problems = await fileProblems({
      keysDirectory,
      credentialsFile: pipe,
      revocationsFile: { file: pipe, required: true },
      tls: { certFile: pipe, keyFile: pipe, clientCaFile: pipe },
      upstreams: [{ prefix: '/', url: 'https://x', caFile: pipe, certFile: pipe, keyFile: pipe }],
    })
    t.equal(problems.length, 10)
    for (const { message } of problems) t.match(message, /: is not a file$/)

    t.same(await readUrlFile(pipe), { ok: false, problems: [`${pipe}: is not a file`] })
    const urlFile = join(pipe, '..', 'url')
    for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
      writeFileSync(urlFile, `postgres://me:hush@db/accounts?${name}=${pipe}`)
      t.same(await readUrlFile(urlFile), {
        ok: false,
        problems: [`${urlFile}: names a certificate or key file that is not a file`],
      })
    }
    t.match(loadConfig({ file: pipe, env: {}, flags: {} }), {
      ok: false,
      problems: [{ message: 'cannot read the configuration: it is not a file' }],
    })
  },
)

t.test('nobody reads files that others name in any other way', async (t) => {
  const others = new Map([
    ['reload/files.ts', 'this is the way'],
    ['demo/object-files.ts', 'objects that the demo has written itself'],
    ['forward/send-queue.ts', 'a table of the kernel'],
    ['version.ts', 'a file of ours'],
  ])
  const source = new URL('../../src/', import.meta.url)
  for (const name of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts') || others.has(name)) continue
    const text = readFileSync(new URL(name, source), 'utf8')
    const imports = [...text.matchAll(/^import \{([^}]*)\} from 'node:fs(?:\/promises)?'/gms)].join()
    t.notMatch(imports, /\b(?:readFile|readFileSync|open|openSync|createReadStream)\b/, name)
  }
})
