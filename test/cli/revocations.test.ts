/** The `revocations` commands, on a file and on a database. */
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { revocationsCommand } from '../../src/cli/credentials.ts'
import { loadRevocationsFile } from '../../src/credentials/list-files.ts'
import { NO_SERVER, openStore } from '../support/opened-database.ts'
import { startPostgres } from '../support/postgres.ts'
import { runCommand } from '../support/run-command.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { ISSUER } from '../support/tokens.ts'

const NOW = Date.parse('2027-01-01T00:00:00.250Z')
const server = await startPostgres(t)
const token = { tokenId: 'j', accountId: 'acme', accessKey: 'AK', issuedAtSeconds: NOW / 1000 - 0.25 }

const run = (...args: string[]) => runCommand(revocationsCommand, args, { now: NOW })

async function json(...args: string[]) {
  const { stdout, failure } = await run(...args)
  if (failure !== undefined) {
    throw new Error(failure.message)
  }
  return JSON.parse(stdout)
}

/** The same commands have the same effect in both stores. */
async function revokesListsAndRemoves(
  t: Test,
  store: readonly [string, string],
  isRevoked: () => Promise<boolean>,
) {
  const ofAccount = { accountId: 'acme', issuedBefore: new Date(NOW).toISOString() }
  t.same(await json('add', ...store, '--account', 'acme', '--issued-before', 'now'), ofAccount)
  t.equal(await isRevoked(), true, 'a token of the same second too')
  t.same(await json('add', ...store, '--jti', 'other'), { jti: 'other' })
  const ofAccessKey = { accessKey: 'AK', issuedBefore: '1970-01-01T00:00:00.000Z' }
  t.same(
    await json('add', ...store, '--access-key', 'AK', '--issued-before', '1970-01-01T00:00:00Z'),
    ofAccessKey,
  )
  t.same(await json('add', ...store, '--account', 'acme', '--issued-before', '2020-01-01T00:00:00Z'), {
    accountId: 'acme',
    issuedBefore: '2020-01-01T00:00:00.000Z',
  })
  t.equal((await json('list', ...store, '--json')).length, 4)
  const table = `BY         NAME   ISSUED BEFORE
accountId  acme   ${ofAccount.issuedBefore}
jti        other  any time
accessKey  AK     ${ofAccessKey.issuedBefore}
accountId  acme   2020-01-01T00:00:00.000Z
`
  t.equal((await run('list', ...store)).stdout, table)
  t.same(await json('remove', ...store, '--account', 'acme', '--json'), { accountId: 'acme', removed: true })
  t.equal(await isRevoked(), false)
  t.same(await json('list', ...store, '--json'), [{ jti: 'other' }, ofAccessKey])
  t.match((await run('remove', ...store, '--account', 'acme')).failure, {
    exitCode: 1,
    message: /there is no such revocation$/,
  })
}

t.test('a file is created, and its entries are added, listed and removed', async (t) => {
  const file = join(await temporaryDirectory(t), 'revocations.yaml')
  await revokesListsAndRemoves(t, ['--file', file], async () => {
    const loaded = await loadRevocationsFile(file, true)
    return loaded.ok && loaded.value.isRevoked(token, ISSUER)
  })
  t.equal((await stat(file)).mode & 0o777, 0o600)
})

t.test('a database works the same', { skip: server === undefined && NO_SERVER }, async (t) => {
  const database = await server?.createDatabase('tables')
  const urlFile = database?.urlFile ?? ''
  await revokesListsAndRemoves(t, ['--postgres-url-file', urlFile], async () => {
    const store = await openStore(t, urlFile)
    return store.revocations().isRevoked(token)
  })
})

t.test('comments, order and layout of a file are kept', async (t) => {
  const file = join(await temporaryDirectory(t), 'revocations.yaml')
  const text = `# ours
revocations:
  # stolen laptop
  - accessKey: "AK"
    issuedBefore: 2026-01-01T00:00:00+01:00 # reported
  - { jti: a }
`
  await writeFile(file, text)
  await json('add', '--file', file, '--jti', 'b')
  t.equal(await readFile(file, 'utf8'), `${text}  - jti: b\n`)
  await run('remove', '--file', file, '--jti', 'b')
  t.equal(await readFile(file, 'utf8'), text)
})

t.test('wrong usage and unusable files end with exit code 2, and change nothing', async (t) => {
  const file = join(await temporaryDirectory(t), 'revocations.yaml')
  await writeFile(file, 'revocations: 5\n')
  await writeFile(`${file}.merge`, 'revocations: [{ <<: { jti: a } }]\n')
  await writeFile(`${file}.large`, 'revocations: []\n# '.padEnd(8_388_608, 'x'))
  const refuses = async (args: readonly string[], message: string | RegExp) => {
    const { failure } = await run(...args)
    t.match(failure, { exitCode: 2, message }, args.join(' '))
  }
  const add = ['add', '--file', file]
  const remove = ['remove', '--file', file]
  const two = ['--account', 'a', '--access-key', 'b']
  const needsOne = 'give exactly one of --jti, --account and --access-key'
  await refuses(add, needsOne)
  await refuses([...add, ...two], needsOne)
  await refuses([...remove, ...two], needsOne)
  await refuses([...add, '--jti', 'a', '--issued-before', 'now'], /cannot be used with option/)
  const noTime = /'--issued-before <time>' is invalid. It must be an RFC 3339 time/
  await refuses([...add, '--account', 'a', '--issued-before', 'yesterday'], noTime)
  const noName = /'--account <id>' is invalid. It must be 1 to 1024 characters long/
  await refuses([...add, '--account', ''], noName)
  await refuses(['add', '--account', 'a'], '--file or --postgres-url-file is required')
  await refuses(['list', '--file', file], /:1:14: revocations must be a list/)
  await refuses([...add, '--account', 'a'], /:1:14: revocations must be a list/)
  await refuses(['remove', '--file', `${file}.merge`, '--jti', 'a'], /uses YAML aliases or merges/)
  await refuses(['add', '--file', `${file}.large`, '--jti', 'a'], /would be larger than 8388608 bytes/)
  await refuses(['list', '--file', `${file}.none`], /there is no such file/)
  await refuses(['remove', '--file', `${file}.none`, '--jti', 'a'], /there is no such file/)
  t.equal(await readFile(file, 'utf8'), 'revocations: 5\n')
})
