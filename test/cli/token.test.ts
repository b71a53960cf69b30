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
  // A key directory may have hidden files.
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

t.test('issue accepts a lifetime up to the maximum and refuses others', async (t) => {
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
  const start = `verdict     valid
            The token is accepted.
kid         "${keys.kid}"
alg         "ES256"
account     "acme"
access key  "AK1"
time left   3600 s
revoked     no
credential  active
header      {
`
  t.equal(stdout.slice(0, start.length), start)
  t.match(stdout, '"client_id": "AK1"')
  t.notOk(stdout.includes(String(minted.split('.')[2]).slice(0, 20)))
})

/** The values of a report by their names. */
function valuesIn(report: string): Record<string, string> {
  const lines = report.matchAll(/^(\S.*?) {2,}(.+)$/gm)
  return Object.fromEntries(Array.from(lines, ([, name, value]) => [name, value]))
}

t.test('inspect exits with 1 for a refused token and prints the reason', async (t) => {
  const { runToken, mint, changeCredential } = await setUp(t)
  const inspectRefused = async (text: string, at = NOW) => {
    const { failure, stdout } = await runToken(['inspect', text], { now: at })
    t.equal(failure?.exitCode, 1)
    return { message: failure?.message, text: stdout, ...valuesIn(stdout) }
  }
  t.match(await inspectRefused(await mint(), NOW + 3_600_000), {
    message: /: expired$/,
    verdict: 'refused (expired)',
    'time left': '0 s',
  })
  t.match(await inspectRefused('hello'), {
    message: /: malformed$/,
    kid: 'null',
    'time left': 'unknown',
    revoked: 'unknown',
    credential: 'unknown',
  })
  t.match(await inspectRefused(''), { message: /: missing$/, text: 'There is no token' })
  t.match(await inspectRefused(`Bearer ${await mint()}`), {
    message: /: malformed$/,
    text: /a scheme such as Bearer.+"sub": "acme"/s,
  })
  t.match(await inspectRefused('a'.repeat(200_000)), {
    message: /: malformed$/,
    text: 'more than 8192 characters.',
  })
  t.match(await inspectRefused(await mint({ header: { kid: 'x' } })), { message: /: unknown_key$/ })
  t.match(await inspectRefused(await mint({ claims: { iss: 'x' } })), {
    message: /: claims$/,
    text: /Its iss is "x"\. Accepted: "[\w-]+" \(token\.issuer\)\./,
  })
  await changeCredential('disable')
  t.match(await inspectRefused(await mint()), {
    message: /: revoked$/,
    account: '"acme"',
    'access key': '"AK1"',
    revoked: 'yes',
    credential: 'not active',
  })
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

t.test('issue warns of other files beside the keys', async (t) => {
  const { runToken, keys } = await setUp(t)
  writeFileSync(`${keys.directory}/note.txt`, '')
  const { failure, stderr } = await runToken(['issue', ...SUBJECT])
  t.equal(failure, undefined)
  t.match(stderr, /^warning: .+note\.txt: ignored/)
})

t.test('unusable settings, keys or credentials exit with 2', async (t) => {
  const { runToken, keys, credentials } = await setUp(t)
  t.match((await runToken(['issue', ...SUBJECT, '--token-issuer', ''])).failure, { exitCode: 2 })
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
  const inspect = async (url: string, waitMs?: number) =>
    runCommand(
      (io) => tokenCommand(io, waitMs),
      ['inspect', '--json', '--keys-jwks-url', url, await mint()],
      { now: NOW },
    )
  const { stdout, failure } = await inspect(`http://127.0.0.1:${port}/keys`)
  t.equal(failure, undefined)
  t.match(JSON.parse(stdout), { verdict: 'valid', revoked: false, credentialActive: null })
  const away = await inspect('http://127.0.0.1:1/', 500)
  t.match(away.failure, { exitCode: 1, message: 'no answer within 0.5 s: keys' })
  t.match(
    away.stderr,
    /^warning: the JWK Set cannot be used, there is none yet: http:\/\/127\.0\.0\.1:1\/: \w/,
  )
})
