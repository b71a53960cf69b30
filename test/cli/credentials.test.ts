import { existsSync } from 'node:fs'
import { chmod, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { createCredentialChecks } from '../../src/credentials/credential-checks.ts'
import { loadCredentialsFile } from '../../src/credentials/list-files.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { NO_SERVER, openStore } from '../support/opened-database.ts'
import { startPostgres } from '../support/postgres.ts'
import { startProgram } from '../support/program.ts'
import { runCommand } from '../support/run-command.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const NOW = Date.parse('2027-01-01T00:00:00Z')
const server = await startPostgres(t)
const NO_SERVER_HERE = server === undefined && NO_SERVER
const createDatabase = server?.createDatabase ?? (() => Promise.reject(new Error(NO_SERVER)))

/** Runs `credentials …` as the program would. */
const run = (args: readonly string[], stdin: string | Buffer = '') =>
  runCommand(credentialsCommand, args, { stdin, now: NOW })

/** Runs a command that must succeed, and reads the JSON it prints. */
async function json(args: readonly string[], stdin?: string | Buffer) {
  const { stdout, failure } = await run(args, stdin)
  if (failure !== undefined) {
    throw new Error(failure.message)
  }
  return JSON.parse(stdout)
}

async function verdict(file: string, login: { accountId: string; accessKey: string; secret: string }) {
  const loaded = await loadCredentialsFile(file)
  if (!loaded.ok) {
    return loaded.problems
  }
  const { value } = loaded
  const checks = createCredentialChecks({ list: () => value, refresh: async () => true }, () => NOW)
  const { outcome } = await checks.authenticate(login, { network: 'test', hasLeft: () => false })
  return outcome
}

t.test('add creates the file and a credential, and its printed secret logs in', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const printed = await json(['add', '--file', file, '--account', 'acme'])
  t.same(Object.keys(printed), ['accountId', 'accessKey', 'secret'])
  t.match(printed, { accountId: 'acme', accessKey: /^AK[0-9A-F]{20}$/, secret: /^[\w-]{43}$/ })
  t.equal((await stat(file)).mode & 0o777, 0o600)
  const text = await readFile(file, 'utf8')
  t.match(text, /secretHash: \$sha256\$/)
  t.notMatch(text, printed.secret)
  t.equal(await verdict(file, printed), 'accepted')
})

t.test('a secret from stdin is read byte for byte, without one final newline', async (t) => {
  const hush = 'hush of twelve'
  const secrets: [string, string][] = [
    [hush, hush],
    [`${hush}\n`, hush],
    [`${hush}\r\n`, hush],
    [`${hush}\r\n\n`, `${hush}\r\n`],
    [`${hush}\n\n`, `${hush}\n`],
    [` ${hush}\r`, ` ${hush}\r`],
    [`\ufeff${'é'.normalize('NFD')}${hush}`, `\ufeff${'é'.normalize('NFD')}${hush}`],
    ['12 character\n', '12 character'],
    [`${'😀'.repeat(1024)}\n`, '😀'.repeat(1024)],
  ]
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  for (const [index, [stdin, secret]] of secrets.entries()) {
    const name = { accountId: 'acme', accessKey: `k${index}` }
    const args = ['--file', file, '--account', 'acme', '--access-key', name.accessKey, '--secret-stdin']
    t.same(await json(['add', ...args], stdin), { ...name, secret })
    // scrypt takes 0.2 s: the rest shows in what is printed.
    if (/[\r\ufeff]/.test(secret)) {
      t.equal(await verdict(file, { ...name, secret }), 'accepted')
    }
  }
  t.notMatch(await readFile(file, 'utf8'), /sha256|hush/)
})

t.test(
  'a terminal prompts for the secret and does not echo it',
  { skip: !existsSync('/usr/bin/script') },
  async (t) => {
    const file = join(await temporaryDirectory(t), 'credentials.yaml')
    // `script` runs the program in a terminal.
    const runner = ['bash', '-c', 'exec script -qec "$(printf "%q " "$@")" /dev/null', 'bash']
    const type = async (keys: string) => {
      const args = `credentials add --file ${file} --account a --access-key k --secret-stdin`.split(' ')
      const program = startProgram(t, args, { runner, stdio: ['pipe', 'pipe', 'pipe'] })
      await program.until(() => program.stdout().includes('Secret (not shown): '), 'the prompt')
      program.child.stdin?.write(keys)
      return { code: (await program.ended).code, shown: program.stdout() }
    }
    for (const key of ['half a sec\x03', '\x04']) {
      t.match(await type(key), { code: 2, shown: /^Secret \(not shown\): \r\nno secret has been given\r\n$/ })
    }
    const { code, shown } = await type('a chosen secreX\x7ft\r')
    t.match(
      shown,
      /^Secret \(not shown\): \r\n\{"accountId":"a","accessKey":"k","secret":"a chosen secret"\}\r\n$/,
    )
    t.equal(code, 0)
    t.equal(await verdict(file, { accountId: 'a', accessKey: 'k', secret: 'a chosen secret' }), 'accepted')
  },
)

t.test('a secret that no client could send is refused', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const secrets: [string | Buffer, string | RegExp][] = [
    ['', 'the secret on stdin must be 1 to 1024 characters long'],
    ['\n', 'the secret on stdin must be 1 to 1024 characters long'],
    ['x'.repeat(1025), 'the secret on stdin must be 1 to 1024 characters long'],
    [Buffer.from([0x68, 0xff]), 'the secret on stdin is not UTF-8 text'],
    ['elevenchars\n', /^a secret of fewer than 12 characters can be guessed: choose a longer one/],
    ['😀'.repeat(11), /^a secret of fewer than 12 characters/],
  ]
  for (const [stdin, message] of secrets) {
    const { failure, stdout } = await run(['add', '--file', file, '--account', 'a', '--secret-stdin'], stdin)
    t.match(failure, { exitCode: 2, message })
    t.equal(stdout, '')
  }
  await t.rejects(stat(file), 'and no file is made')
})

t.test('list shows everything except secrets and hashes', async (t) => {
  const { file } = await makeCredentialsFile(t, [
    { accountId: 'acme', accessKey: 'forever' },
    { accountId: 'acme', accessKey: 'chosen', scheme: 'scrypt', secret: 'hush' },
    { accountId: 'other', accessKey: 'old', expiresAt: '2027-01-01T00:00:00Z' },
    { accountId: 'other', accessKey: 'off', disabled: true, expiresAt: '2027-02-01T00:00:00+01:00' },
  ])
  const text = await run(['list', '--file', file])
  t.equal(
    text.stdout,
    `ACCOUNT  ACCESS KEY  STATE     SECRET     EXPIRES
acme     forever     active    generated  never
acme     chosen      active    chosen     never
other    old         expired   generated  2027-01-01T00:00:00.000Z
other    off         disabled  generated  2027-01-31T23:00:00.000Z
`,
  )
  t.equal(text.stderr, '')
  const listed = await run(['list', '--file', file, '--json'])
  t.same(JSON.parse(listed.stdout)[3], {
    accountId: 'other',
    accessKey: 'off',
    active: false,
    disabled: true,
    expiresAt: '2027-01-31T23:00:00.000Z',
    secretKind: 'generated',
  })
  t.notMatch(text.stdout + listed.stdout, /\$|hush/)
})

t.test('wrong usage is reported before anything is changed', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const named = ['--file', file, '--account', 'a', '--access-key', 'k']
  const usages: [string[], string | RegExp][] = [
    [['list'], '--file or --postgres-url-file is required'],
    [
      ['add', '--file', file, '--postgres-url-file', 'x', '--account', 'a'],
      /option '--file <path>' cannot be used with option '--postgres-url-file <path>'/,
    ],
    [
      ['add', '--file', file, '--account', ''],
      /'--account <id>' is invalid. It must be 1 to 1024 characters/,
    ],
    [['add', '--file', file, '--account', 'a\n'], /'--account <id>' is invalid. It must not hold control/],
    [
      ['disable', '--file', file, '--account', 'a', '--access-key', '\x7f'],
      /'--access-key <key>' is invalid. It must not hold control characters/,
    ],
    [
      ['add', '--file', file, '--account', 'a', '--expires-at', 'tomorrow'],
      /'--expires-at <time>' is invalid. It must be an RFC 3339 time with its zone, in UTC before the year 10000/,
    ],
    [['restrict', ...named], '--scope or --unrestricted is required'],
    [['restrict', ...named, '--scope', ''], /'--scope <scope>' is invalid. It must not be empty/],
    [
      ['add', ...named, '--scope', 'storage.read:a'],
      /'--scope <scope>' is invalid. It has an invalid item 1: /,
    ],
  ]
  for (const [args, message] of usages) {
    const { failure } = await run(args)
    t.match(failure, { exitCode: 2, message }, args.join(' '))
  }
  await t.rejects(stat(file))
  for (const args of [
    ['add', '--file', file],
    ['enable', '--file', file, '--account', 'a'],
    ['list', '--colour'],
    ['list', '--file', ''],
    ['list', '--postgres-url-file', ''],
    ['list', '--postgres-url-file', 'postgres://a:b@c/d'],
    ['grow'],
    ['migrate'],
  ]) {
    const { failure, stderr } = await run(args)
    t.equal(failure?.exitCode, 2, args.join(' '))
    t.match(stderr, /^error: .*\n$/, 'one plain line')
  }
})

/** Runs a command in an empty file and an empty database, and compares what it prints there. */
async function twoPlaces(t: Test) {
  const { urlFile } = await createDatabase('tables')
  const { file } = await makeCredentialsFile(t, [])
  const runAt = async (args: readonly string[], stdin: string) => {
    const { stdout, stderr, failure } = await run(args, stdin)
    return {
      stdout: stdout.replace(/"secret":"[^"]{43}"/, '"secret":"…"'), // a new secret each time
      stderr,
      exitCode: failure?.exitCode,
      problem: failure?.message.replace(/^.*: /, ''),
    }
  }
  return async (args: readonly string[], stdin = '') => {
    const inFile = await runAt([...args, '--file', file], stdin)
    const inDatabase = await runAt([...args, '--postgres-url-file', urlFile], stdin)
    t.same(inDatabase, inFile, args.join(' '))
    return inDatabase
  }
}

const AK1 = ['--account', 'acme', '--access-key', 'AK1']

t.test(
  'a database and a file: add, disable, enable, list and remove',
  { skip: NO_SERVER_HERE },
  async (t) => {
    const both = await twoPlaces(t)
    t.match(await both(['add', ...AK1]), { stdout: '{"accountId":"acme","accessKey":"AK1","secret":"…"}\n' })
    t.match(await both(['add', ...AK1]), { exitCode: 1, stdout: '' })
    await both(['add', '--account', 'other', '--access-key', 'k', '--secret-stdin'], 'hush-hush-hush\n')
    const soon = ['--account', 'acme', '--access-key', 'soon', '--expires-at', '2027-01-01T00:00:01Z']
    t.match(await both(['add', ...soon]), { stdout: /,"secret":"…","expiresAt":"2027-01-01T00:00:01Z"}\n$/ })
    t.match(await both(['disable', ...AK1]), { stdout: 'disabled\n' })
    t.match(await both(['list']), {
      stdout: `ACCOUNT  ACCESS KEY  STATE     SECRET     EXPIRES
acme     AK1         disabled  generated  never
acme     soon        active    generated  2027-01-01T00:00:01.000Z
other    k           active    chosen     never
`,
    })
    t.match(await both(['enable', ...AK1, '--json']), {
      stdout: '{"accountId":"acme","accessKey":"AK1","disabled":false}\n',
    })
    t.match(await both(['remove', ...AK1]), { stdout: 'removed\n' })
    await both(['remove', '--account', 'acme', '--access-key', 'soon'])
    await both(['list', '--json'])
  },
)

t.test('a database and a file: times of expiry', { skip: NO_SERVER_HERE }, async (t) => {
  const both = await twoPlaces(t)
  const addUntil = (time: string) =>
    both(['add', '--account', 'a', '--access-key', 'k', '--expires-at', time])
  t.match(await addUntil('2027-01-01T01:00:00+01:00'), { exitCode: 2, problem: /in the past/, stdout: '' })
  for (const time of ['9999-12-31T23:59:59-12:00', '0000-01-01T00:00:00+00:01', '2027-02-29T00:00:00Z']) {
    t.match(await addUntil(time), { exitCode: 2, stdout: '' }, time)
  }
  t.match(await addUntil('9999-12-31T23:59:59.9999Z'), { exitCode: undefined })
  await both(['list', '--json'])
})

t.test('a database and a file: scopes', { skip: NO_SERVER_HERE }, async (t) => {
  const both = await twoPlaces(t)
  await both(['add', ...AK1])
  const scope = 'storage.read:/photos storage.create:/photos/in'
  await both(['add', '--account', 'narrow', '--access-key', 'k', '--scope', scope])
  t.match(await both(['restrict', ...AK1, '--scope', 'storage.read:/a']), {
    stdout: 'restricted to storage.read:/a\n',
  })
  const { stdout: list } = await both(['list'])
  t.match(list, /^ACCOUNT .* SCOPE\nacme +AK1 .* never +storage\.read:\/a\n/)
  t.ok(list.includes(`  ${scope}\n`))
  t.match(await both(['restrict', ...AK1, '--unrestricted', '--json']), {
    stdout: '{"accountId":"acme","accessKey":"AK1","scope":null}\n',
  })
  t.notMatch((await both(['list'])).stdout, /storage\.read:\/a\n/)
})

t.test('a database and a file: a whole account is disabled', { skip: NO_SERVER_HERE }, async (t) => {
  const both = await twoPlaces(t)
  for (const accessKey of ['one', 'two']) {
    t.match(await both(['add', '--account', 'all', '--access-key', accessKey]), { exitCode: undefined })
  }
  t.match(await both(['disable', '--account', 'all', '--json']), {
    stdout: '{"accountId":"all","accessKeys":["one","two"],"disabled":true}\n',
  })
  t.match((await both(['list'])).stdout, /^all +one +disabled.*\nall +two +disabled/m)
  t.match(await both(['disable', '--account', 'none']), { exitCode: 1, stdout: '' })
})

t.test('a database and a file: a secret is rotated', { skip: NO_SERVER_HERE }, async (t) => {
  const both = await twoPlaces(t)
  await both(['add', ...AK1])
  t.match(await both(['rotate', ...AK1]), {
    stdout:
      '{"accountId":"acme","accessKey":"AK1","secret":"…","previousSecretExpiresAt":"2027-01-08T00:00:00.000Z"}\n',
  })
  t.match(
    (await both(['list'])).stdout,
    /EXPIRES .*PREVIOUS SECRET UNTIL.*\nacme +AK1 .* 2027-01-08T00:00:00.000Z/,
  )
  t.match((await both(['list', '--json'])).stdout, /"previousSecretExpiresAt":"2027-01-08T00:00:00.000Z"/)
  t.match(await both(['rotate', ...AK1, '--overlap-seconds', '0']), {
    stdout: '{"accountId":"acme","accessKey":"AK1","secret":"…"}\n',
  })
  t.notMatch((await both(['list', '--json'])).stdout, /previousSecret/)
  for (const seconds of ['0.5', '-1', 'x', '99999999999']) {
    const refused = await both(['rotate', ...AK1, `--overlap-seconds=${seconds}`])
    t.match(refused, { exitCode: 2, stdout: '' }, seconds)
  }
})

t.test('a database and a file: a name that is not there', { skip: NO_SERVER_HERE }, async (t) => {
  const both = await twoPlaces(t)
  await both(['add', '--account', 'acme', '--access-key', 'other'])
  for (const command of ['remove', 'disable', 'enable', 'restrict', 'rotate']) {
    const flags = command === 'restrict' ? ['--unrestricted'] : []
    t.match(await both([command, ...AK1, ...flags]), { exitCode: 1, stdout: '' }, command)
  }
})

t.test(
  'import copies each credential of a file into the database once',
  { skip: NO_SERVER_HERE },
  async (t) => {
    const { urlFile, sql } = await createDatabase('tables')
    const file = join(await temporaryDirectory(t), 'credentials.yaml')
    const at = ['--file', file]
    const first = await json(['add', ...at, '--account', 'acme', '--access-key', 'first'])
    await json(['rotate', ...at, '--account', 'acme', '--access-key', 'first'])
    const limited = ['--expires-at', '2030-01-01T00:00:00Z', '--scope', 'storage.read:/a']
    await json(['add', ...at, '--account', 'acme', '--access-key', 'second', ...limited])
    await json(['disable', ...at, '--account', 'acme', '--access-key', 'second', '--json'])
    const database = ['--postgres-url-file', urlFile]
    await json(['add', ...database, '--account', 'there', '--access-key', 'AK'])
    await json(['add', ...at, '--account', 'there', '--access-key', 'AK'])
    const there = await sql('SELECT * FROM storage_auth.credentials')
    t.match(await run(['import', ...at, ...database]), {
      stdout: 'imported 2 of 3\nwas there, and is unchanged: there AK\n',
      failure: undefined,
    })
    t.same(await sql(`SELECT * FROM storage_auth.credentials WHERE account_id = 'there'`), there)
    const ofAcme = (list: { accountId: string }[]) => list.filter(({ accountId }) => accountId === 'acme')
    t.same(ofAcme(await json(['list', ...database, '--json'])), ofAcme(await json(['list', ...at, '--json'])))
    const { store } = await openStore(t, urlFile)
    t.equal(await store.authenticate(first), 'accepted', 'the former secret, too')
    const again = await json(['import', ...at, ...database, '--json'])
    t.match(again, { imported: 0, existing: [{ accountId: 'acme', accessKey: 'first' }, {}, {}] })
    t.match(await run(['import', '--file', `${file}x`, ...database]), {
      stdout: '',
      failure: { exitCode: 2 },
    })
  },
)

t.test('migrate creates the tables once and prints the grants', { skip: NO_SERVER_HERE }, async (t) => {
  const { urlFile } = await createDatabase('empty')
  const migrate = ['migrate', '--postgres-url-file', urlFile]
  const { failure } = await run(['list', '--postgres-url-file', urlFile])
  t.match(failure, {
    exitCode: 2,
    message: /its tables are missing: run `storage-auth-sidecar credentials migrate /,
  })
  t.same(await json([...migrate, '--json']), { created: true })
  t.same(await json([...migrate, '--json']), { created: false })
  await chmod(urlFile, 0o644)
  t.match(await run(migrate), {
    stdout: 'the tables are up to date\n',
    stderr: `warning: ${urlFile} can be read by every user of this machine\n`,
  })
  const fresh = await createDatabase('empty')
  t.match(await run(['migrate', '--postgres-url-file', fresh.urlFile]), { stdout: 'created the tables\n' })
})
