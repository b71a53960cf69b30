/** The `token` commands: issue and inspect. */
import { rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { tokenCommand } from '../../src/cli/token.ts'
import { makeKeyDirectory, writeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { type CommandInput, runCommand } from '../support/run-command.ts'
import { mintToken } from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const SUBJECT = ['--account', 'acme', '--access-key', 'AK1']

/** Settings, keys and one credential on disk, and the commands that use them. */
async function setUp(t: Test) {
  const keys = await makeKeyDirectory(t)
  const credentials = `${keys.directory}/.credentials.yaml`
  const config = `${keys.directory}/.sidecar.yaml`
  const settings = `keys: { directory: ${keys.directory} }
credentials: { file: ${credentials} }
token: { lifetimeSeconds: 600 }
`
  writeFileSync(config, settings)
  const changeCredential = (verb: string) =>
    runCommand(credentialsCommand, [verb, '--file', credentials, ...SUBJECT])
  await changeCredential('add')
  const runToken = (args: readonly string[], input: CommandInput = {}) => {
    const [verb = '', ...rest] = args
    return runCommand(tokenCommand, [verb, '--config', config, ...rest], { now: NOW, ...input })
  }
  const mint = async (options: object = {}) =>
    mintToken({ key: keys, now: NOW, claims: { sub: 'acme', client_id: 'AK1' }, ...options })
  return { keys, credentials, config, changeCredential, runToken, mint }
}

t.test('issue creates a token that inspect reports as valid', async (t) => {
  const { runToken, keys } = await setUp(t)
  const issued = await runToken(['issue', ...SUBJECT])
  t.equal(issued.failure, undefined)
  t.equal(issued.stderr, '')
  t.match(issued.stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/)
  t.match(decodeJwt(issued.stdout), { sub: 'acme', client_id: 'AK1', exp: NOW / 1000 + 600 })

  const inspected = await runToken(['inspect', '--json', issued.stdout.trim()])
  t.equal(inspected.failure, undefined)
  t.match(JSON.parse(inspected.stdout), { verdict: 'valid', reason: null, kid: keys.kid, alg: 'ES256' })
  t.match(JSON.parse(inspected.stdout), { timeLeftSeconds: 600, revoked: false, credentialActive: true })
})

t.test('issue gives the token of a restricted credential its scope', async (t) => {
  const { runToken, credentials } = await setUp(t)
  const scope = 'storage.read:/backups'
  const restricted = ['--account', 'acme', '--access-key', 'AK2']
  await runCommand(credentialsCommand, ['add', '--file', credentials, ...restricted, '--scope', scope])
  t.match(decodeJwt((await runToken(['issue', ...restricted])).stdout), { client_id: 'AK2', scope })
  t.notOk('scope' in decodeJwt((await runToken(['issue', ...SUBJECT])).stdout))
})

t.test('issue accepts a lifetime up to the maximum', async (t) => {
  const { runToken } = await setUp(t)
  const issued = await runToken(['issue', ...SUBJECT, '--lifetime-seconds', '5', '--json'])
  const { token: text, ...rest } = JSON.parse(issued.stdout)
  t.same(rest, { expirationSec: 5, expiresAt: '2026-11-20T12:00:05.000Z' })
  t.equal(decodeJwt(text).exp, NOW / 1000 + 5)
  for (const lifetime of ['0', '86401', '-1', '1.5', 'x']) {
    const { failure, stdout } = await runToken(['issue', ...SUBJECT, '--lifetime-seconds', lifetime])
    t.match(failure, { exitCode: 2, message: /lifetime-seconds/ }, lifetime)
    t.equal(stdout, '')
  }
  t.equal((await runToken(['issue', ...SUBJECT, '--lifetime-seconds', '86400'])).failure, undefined)
})

t.test('issue refuses invalid names and a directory without a signing key', async (t) => {
  const { runToken, keys } = await setUp(t)
  const bad = await runToken(['issue', '--account', 'a\r\nb', '--access-key', 'AK1'])
  t.match(bad.failure, {
    exitCode: 2,
    message: /'--account <id>' is invalid. It must not hold control characters/,
  })
  const long = '密'.repeat(1024)
  const tooLong = await runToken(['issue', '--account', long, '--access-key', long])
  t.match(tooLong.failure, { exitCode: 2, message: /^--access-key must be shorter: account and access key/ })
  t.match((await runToken(['issue', '--account', 'acme'])).failure, { exitCode: 2 })
  rmSync(`${keys.directory}/${keys.kid}.jwk.json`)
  writeKey(keys.directory, keys.publicJwk)
  t.match((await runToken(['issue', ...SUBJECT])).failure, { exitCode: 2, message: /holds no private key/ })
})

t.test('issue warns of a token that the sidecar refuses', async (t) => {
  const { runToken, keys, config, changeCredential, credentials } = await setUp(t)
  const warnings = async (...args: string[]) => {
    const { failure, stdout, stderr } = await runToken(['issue', ...args])
    t.equal(failure, undefined)
    t.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/)
    return stderr
  }
  const refused = 'warning: no active credential has this account and access key: the token is refused\n'
  t.equal(await warnings('--account', 'acme', '--access-key', 'AK2'), refused)
  await changeCredential('disable')
  t.equal(await warnings(...SUBJECT), refused)
  rmSync(credentials)
  const unknown = /^warning: no credential is known, so the token has no scope: .*there is no such file/
  t.match(await warnings(...SUBJECT), unknown)

  writeFileSync(credentials, 'postgres://u:p@127.0.0.1:1/db')
  const inDatabase = `credentials: { postgres: { urlFile: ${credentials} } }`
  writeFileSync(config, `keys: { directory: ${keys.directory} }\n${inDatabase}\n`)
  const down = /^warning: no credential is known, .*: the connection failed \(ECONNREFUSED\)\n$/
  t.match(await warnings(...SUBJECT), down)
})

t.test('inspect reads a token from stdin', async (t) => {
  const { runToken, mint } = await setUp(t)
  const { failure, stdout } = await runToken(['inspect', '--json'], { stdin: `${await mint()}\n` })
  t.equal(failure, undefined)
  t.match(JSON.parse(stdout), { verdict: 'valid', claims: { sub: 'acme' } })
  t.match((await runToken(['inspect'], { stdin: Buffer.alloc(3_000_000) })).failure, { exitCode: 1 })
})

t.test('inspect reports in words, without the signature', async (t) => {
  const { runToken, mint, keys } = await setUp(t)
  const minted = await mint()
  const { stdout } = await runToken(['inspect', minted])
  t.match(stdout, /^verdict {5}valid\n {12}The token is accepted\.\n/)
  t.match(
    stdout,
    `kid         "${keys.kid}"\nalg         "ES256"\naccount     "acme"\naccess key  "AK1"\ntime left   3600 s\nrevoked     no\ncredential  active\n`,
  )
  t.match(stdout, '"client_id": "AK1"')
  t.notOk(stdout.includes(String(minted.split('.')[2]).slice(0, 20)))
})

t.test('inspect exits with 1 for a refused token and prints the reason', async (t) => {
  const { runToken, mint, changeCredential } = await setUp(t)
  const refused = async (text: string, at = NOW) => {
    const { failure, stdout } = await runToken(['inspect', text], { now: at })
    t.equal(failure?.exitCode, 1)
    return `${failure?.message}\n${stdout}`
  }
  t.match(
    await refused(await mint(), NOW + 3_600_000),
    /expired\nverdict {5}refused \(expired\).+time left {3}0 s/s,
  )
  t.match(
    await refused('hello'),
    /malformed\n.+kid {9}null\n.+time left {3}unknown\nrevoked {5}unknown\ncredential {2}unknown/s,
  )
  t.match(await refused(''), /: missing\n.+There is no token/s)
  t.match(await refused(`Bearer ${await mint()}`), /: malformed\n.+a scheme such as Bearer.+"sub": "acme"/s)
  t.match(await refused('a'.repeat(200_000)), /: malformed\n.+more than 8192 characters\./s)
  t.match(await refused(await mint({ header: { kid: 'x' } })), /: unknown_key\n/)
  t.match(
    await refused(await mint({ claims: { iss: 'x' } })),
    /: claims\n.+Its iss is "x"\. Accepted: "[\w-]+" \(token\.issuer\)\./s,
  )
  await changeCredential('disable')
  t.match(
    await refused(await mint()),
    /: revoked\n.+account {5}"acme"\naccess key {2}"AK1".+revoked {5}yes\ncredential {2}not active/s,
  )
})

t.test('inspect escapes terminal control characters', async (t) => {
  const { runToken, mint } = await setUp(t)
  const controls = '\u001b[31m\u009b2J\u202e\u2028\r\n\u007f\ufeff'
  const text = await mint({
    header: { kid: controls, note: controls },
    claims: { sub: controls, [controls]: controls },
  })
  for (const args of [
    ['inspect', text],
    ['inspect', '--json', text],
  ]) {
    const { stdout } = await runToken(args)
    t.notMatch(stdout, /[^\n -~]/)
    t.match(stdout, '\\u001b[31m\\u009b2J\\u202e\\u2028\\r\\n\\u007f\\ufeff')
  }
  t.equal(JSON.parse((await runToken(['inspect', '--json', text])).stdout).kid, controls)
})

t.test('unusable settings, keys or credentials exit with 2', async (t) => {
  const { runToken, keys, credentials } = await setUp(t)
  t.match((await runToken(['issue', ...SUBJECT, '--token-issuer', ''])).failure, { exitCode: 2 })
  writeFileSync(`${keys.directory}/note.txt`, '')
  const warned = await runToken(['issue', ...SUBJECT])
  t.equal(warned.failure, undefined)
  t.match(warned.stderr, /^warning: .+note\.txt: ignored/)
  writeFileSync(credentials, '')
  t.match((await runToken(['inspect', 'x'])).failure, { exitCode: 2, message: /credentials\.yaml/ })
  writeFileSync(`${keys.directory}/x.jwk.json`, '')
  t.match((await runToken(['issue', ...SUBJECT])).failure, {
    exitCode: 2,
    message: /x\.jwk\.json: is not a JSON text/,
  })
})

t.test('inspect uses the keys of a remote issuer and reports if it does not respond', async (t) => {
  const { keys, mint } = await setUp(t)
  const server = createServer((_req, res) => res.end(JSON.stringify({ keys: [keys.publicJwk] })))
  const port = await listen(t, server)
  const inspect = async (url: string) =>
    runCommand(
      (io) => tokenCommand(io, 500),
      [...['inspect', '--json', '--keys-jwks-url', url], await mint()],
      { now: NOW },
    )
  const { stdout, failure } = await inspect(`http://127.0.0.1:${port}/keys`)
  t.equal(failure, undefined)
  t.match(JSON.parse(stdout), { verdict: 'valid', revoked: false, credentialActive: null })
  const away = await inspect('http://127.0.0.1:1/')
  t.match(away.failure, { exitCode: 1, message: 'no answer within 0.5 s: keys' })
  t.match(
    away.stderr,
    /^warning: the JWK Set cannot be used, there is none yet: http:\/\/127\.0\.0\.1:1\/: \w/,
  )
})
