import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { Command } from 'commander'
import t from 'tap'
import { addSettingFlags, configCommand, loadSettings } from '../../src/cli/config-command.ts'
import { configJsonSchema } from '../../src/config/settings.ts'
import { makeCertificate } from '../support/certificates.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { runCommand } from '../support/run-command.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const upstream = { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9000' }

/** Runs `config …`. */
const run = (args: readonly string[], env: Record<string, string> = upstream) =>
  runCommand(configCommand, args, { env })

t.test('check prints one line if the configuration is valid', async (t) => {
  t.strictSame(await run(['check']), {
    failure: undefined,
    stdout: 'the configuration is valid\n',
    stderr: '',
  })
})

t.test('check --json prints the result as JSON', async (t) => {
  t.strictSame(JSON.parse((await run(['check', '--json'])).stdout), { ok: true, problems: [] })
  const { failure, stdout } = await run(['check', '--json'], {})
  t.equal(failure?.exitCode, 2)
  t.match(JSON.parse(stdout), { ok: false, problems: [{ path: 'upstreams', origin: 'default' }] })
})

t.test('check --files prints warnings to stderr and succeeds', async (t) => {
  const directory = await temporaryDirectory(t)
  const { cert, key } = makeCertificate({ commonName: 'sidecar', notAfter: Date.now() - 1000 })
  const certFile = join(directory, 'expired.pem')
  const keyFile = join(directory, 'key.pem')
  writeFileSync(certFile, cert)
  writeFileSync(keyFile, key, { mode: 0o644 })
  const keys = (await makeKeyDirectory(t)).directory
  const { file } = await makeCredentialsFile(t)
  const flags = ['--keys-directory', keys, '--credentials-file', file, '--listen-tls-cert-file', certFile]
  const args = ['check', '--files', ...flags, '--listen-tls-key-file', keyFile]
  const { failure, stdout, stderr } = await run(args)
  t.strictSame([failure, stdout], [undefined, 'the configuration is valid\n'])
  t.match(
    stderr,
    /^warning: .*expired\.pem: .* expired at .*\nwarning: .*key\.pem can be read by every user.*\n$/,
  )
  t.strictSame(JSON.parse((await run([...args, '--json'])).stdout), { ok: true, problems: [] })
})

t.test('check --fetch says of each key set whether it can be used', async (t) => {
  const { publicJwk } = await makeKeyDirectory(t)
  const good = JSON.stringify({ keys: [publicJwk] })
  const server = createServer((req, res) => res.end(req.url === '/good' ? good : ''))
  const url = `http://127.0.0.1:${await listen(t, server)}`
  const fetched = (path: string) => run(['check', '--fetch', '--keys-jwks-url', `${url}${path}`])
  t.strictSame(await fetched('/good'), {
    failure: undefined,
    stdout: 'the configuration is valid\nkeys.jwksUrl: 1 of its keys can be used\n',
    stderr: '',
  })
  t.match((await fetched('/none')).failure, {
    exitCode: 2,
    message: /keys\.jwksUrl: the JWK Set is not a JWK Set \(--keys-jwks-url\)$/m,
  })
})

t.test('show prints the effective settings, as a table and as JSON', async (t) => {
  t.match((await run(['show', '--listen-port', '81'])).stdout, /^listen\.port +81 +flag --listen-port$/m)
  const shown = JSON.parse((await run(['show', '--json', '--upstream-url', 'http://flag'])).stdout)
  t.strictSame(shown['upstreams'], {
    value: [{ prefix: '/', url: 'http://flag' }],
    origin: 'flag --upstream-url',
  })
  t.equal((await run(['show'], {})).failure?.exitCode, 2)
})

t.test('schema prints the JSON Schema', async (t) => {
  t.equal((await run(['schema'])).stdout, configJsonSchema())
})

t.test('a mistyped flag is refused with a suggestion', async (t) => {
  const { failure, stderr } = await run(['check', '--limits-header-byte', '1'])
  t.equal(failure?.exitCode, 2)
  t.match(stderr, /Did you mean --limits-header-bytes\?/)
})

t.test('commands that forward nothing accept the same flags and need no upstream', async (t) => {
  const settings = (...args: string[]) =>
    loadSettings(addSettingFlags(new Command()).parse(args, { from: 'user' }).opts(), { env: {} }, false)
  t.match(settings('--token-lifetime-seconds', '60').config, {
    token: { lifetimeSeconds: 60 },
    upstreams: [],
  })
  t.throws(() => settings('--token-lifetime-seconds', '0'), { message: /token.lifetimeSeconds: must be/ })
})

t.test('--port is short for --listen-port', async (t) => {
  const { stdout } = await run(['show', '--port', '81', '--admin-port', '82'])
  t.match(stdout, /^listen\.port +81 +flag --port$/m)
  t.match(stdout, /^admin\.port +82 +flag --admin-port$/m)
  t.match((await run(['check', '--port', 'x'])).failure, { message: /listen\.port: must be .* \(--port\)$/m })
  const both = await run(['check', '--port', '1', '--listen-port', '2'])
  t.match(both.failure, { message: /listen\.port: cannot be used with --listen-port \(--port\)$/m })
})
