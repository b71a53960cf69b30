import { generateKeyPairSync } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Command } from 'commander'
import t from 'tap'
import { checkCommand } from '../../src/cli/check.ts'
import { configCommand } from '../../src/cli/config.ts'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { demoCommand } from '../../src/cli/demo.ts'
import { keysCommand } from '../../src/cli/keys.ts'
import { serveCommand } from '../../src/cli/serve.ts'
import { tokenCommand } from '../../src/cli/token.ts'
import { prepareFiles, runProgram, serveArgs, startProgram } from '../support/program.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'

/** Every command as `main.ts` makes it, writing into streams of the test. */
function commands() {
  const stdout = new PassThrough()
  const stderr = new PassThrough()
  const io = { stdin: new PassThrough(), stdout, stderr, env: {} }
  const never = async () => {
    throw new Error('nothing is started here')
  }
  const deps = { createApp: never, stopRequested: never }
  const all = [
    serveCommand(io, deps),
    demoCommand(io, deps),
    configCommand(io),
    keysCommand(io),
    credentialsCommand(io),
    checkCommand(io),
    tokenCommand(io),
  ]
  const run = async (path: readonly string[]) => {
    const program = new Command('storage-auth-sidecar').exitOverride()
    for (const command of all) program.addCommand(command)
    const exitCode = await program.parseAsync([...path], { from: 'user' }).then(
      () => undefined,
      (error: { exitCode: number }) => error.exitCode,
    )
    stdout.end()
    stderr.end()
    return { exitCode, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { all, run }
}

/** The words that lead to each command and subcommand. */
function paths(all: readonly Command[], before: readonly string[] = []): string[][] {
  return all.flatMap((command) => {
    const path = [...before, command.name()]
    return [path, ...paths(command.commands, path)]
  })
}

t.test('every command and subcommand has help with an example', async (t) => {
  const { stdout } = await runProgram(t, ['--help'])
  const listed = [...stdout.matchAll(/^ {2}([a-z]+) (?:\[| {2})/gm)].map(([, name]) => name)
  t.strictSame(
    listed.filter((name) => name !== 'help'),
    commands().all.map((command) => command.name()),
    'this test knows every command',
  )
  for (const path of paths(commands().all)) {
    const { exitCode, stdout: help, stderr } = await commands().run([...path, '--help'])
    const name = path.join(' ')
    t.equal(exitCode, 0, name)
    t.equal(stderr, '', name)
    t.match(help, new RegExp(`^Usage: storage-auth-sidecar ${name} `), name)
    t.match(help, new RegExp(`\\n  (?:\\S.*)?storage-auth-sidecar ${path[0]} `), `${name} has an example`)
  }
})

t.test('a command group alone and an unknown command are wrong usage', async (t) => {
  for (const { commands: inner, name } of commands().all.map((command) => ({
    commands: command.commands,
    name: command.name(),
  }))) {
    const unknown = await commands().run([name, 'fly'])
    t.equal(unknown.exitCode, 1, 'commander’s own code for a mistake, which the program makes 2')
    t.match(unknown.stderr, /^error: (?:unknown command|too many arguments|required option)/, name)
    if (inner.length === 0) continue
    const bare = await commands().run([name])
    t.equal(bare.exitCode, 1, name)
    t.match(bare.stderr, /^Usage: /, name)
  }
})

t.test('all configuration problems are in one report, nothing starts, and no secret is shown', async (t) => {
  const directory = t.testdir({
    keys: { 'bad.jwk.json': '{"kty":"EC","d":"canary"}' },
    'credentials.yaml':
      'accounts:\n- accountId: a\n  credentials:\n  - accessKey: k\n    secretHash: canary\n',
    'sidecar.yaml': 'listen: { port: canary }\nlisten_port: 1\ntoken: { lifetimeSeconds: -1 }\n',
  })
  const upstream = await recordingUpstream(t)
  const { code, stdout, stderr } = await runProgram(
    t,
    [
      'serve',
      ...['--config', join(directory, 'sidecar.yaml')],
      ...['--keys-directory', join(directory, 'keys'), '--cache-max-tokens', '0'],
    ],
    {
      env: {
        SIDECAR_CREDENTIALS_FILE: join(directory, 'credentials.yaml'),
        SIDECAR_UPSTREAM_URL: upstream.url,
        SIDECAR_LISTN_PORT: 'canary',
      },
    },
  )
  t.equal(code, 2)
  t.equal(stdout, '', 'nothing was said to listen')
  for (const expected of [
    /^the configuration has \d+ problems:\n/,
    /listen\.port: .*sidecar\.yaml:1:\d+/,
    /listen_port: .*sidecar\.yaml:2:\d+/,
    /token\.lifetimeSeconds: .*sidecar\.yaml:3:\d+/,
    /cache\.maxTokens: .*--cache-max-tokens/,
    /SIDECAR_LISTN_PORT/,
  ]) {
    t.match(stderr, expected)
  }
  t.notMatch(stderr, /canary|^ +at /m)
  t.equal(upstream.sockets.length, 0)
})

t.test('weak keys prevent the start and are not shown', async (t) => {
  const { files } = await prepareFiles(t)
  const hmac = (kid: string, secret: string) => ({
    ...{ kty: 'oct', kid, alg: 'HS256', use: 'sig' },
    k: Buffer.from(secret).toString('base64url'),
  })
  const rsa = (kid: string, options: { modulusLength: number; publicExponent?: number }) => ({
    ...generateKeyPairSync('rsa', options).publicKey.export({ format: 'jwk' }),
    ...{ kid, alg: 'RS256', use: 'sig' },
  })
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const weak = {
    short: hmac('short', 'canary-canary'),
    small: rsa('small', { modulusLength: 1024 }),
    three: rsa('three', { modulusLength: 2048, publicExponent: 3 }),
    encrypts: { ...ec.publicKey.export({ format: 'jwk' }), kid: 'encrypts', alg: 'ES256', use: 'enc' },
    pem: ec.privateKey.export({ type: 'pkcs8', format: 'pem' }),
    two: { ...ec.publicKey.export({ format: 'jwk' }), kid: 'two', alg: 'HS256', use: 'sig' },
  }
  for (const [kid, key] of Object.entries(weak)) {
    const text = typeof key === 'string' ? key : JSON.stringify(key)
    writeFileSync(join(files['keys-directory'], `${kid}.jwk.json`), text, { mode: 0o600 })
  }
  const { code, stdout, stderr } = await runProgram(
    t,
    ['serve', ...Object.entries(files).flatMap(([name, value]) => [`--${name}`, value])],
    { env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9' } },
  )
  t.equal(code, 2)
  t.equal(stdout, '')
  for (const kid of Object.keys(weak))
    t.match(stderr, new RegExp(`^  keys\\.directory: .*${kid}\\.jwk\\.json`, 'm'))
  t.notMatch(stderr, /canary|PRIVATE KEY|^ +at /m)
  t.notOk(stderr.includes(weak.short.k))
})

t.test('problems of files and settings are in one report, each with its location', async (t) => {
  const config = join(
    t.testdir({
      'sidecar.yaml': `listen:
  port: canary
  tls: { certFile: /none/cert.pem, keyFile: /none/key.pem }
upstreams:
  - { prefix: /, url: https://127.0.0.1:9, caFile: /none/ca.pem }
keys: { directory: 5 }
credentials: { file: /none/credentials.yaml }
`,
    }),
    'sidecar.yaml',
  )
  const args = ['--config', config, '--revocations-file', '/none/revocations.yaml']
  const missing = 'cannot be read: there is no such file or directory'
  const inFiles = [
    `  credentials.file: /none/credentials.yaml: ${missing} (${config}:7:22)`,
    `  revocations.file: /none/revocations.yaml: ${missing} (--revocations-file)`,
    `  listen.tls.certFile: /none/cert.pem: ${missing} (${config}:3:20)`,
    `  listen.tls.keyFile: /none/key.pem: ${missing} (${config}:3:45)`,
    `  upstreams[0].caFile: /none/ca.pem: ${missing} (${config}:5:52)`,
  ]
  for (const command of [['serve'], ['config', 'check', '--files']]) {
    const { code, stdout, stderr } = await runProgram(t, [...command, ...args])
    t.strictSame([code, stdout], [2, ''])
    const [summary, ...lines] = stderr.trimEnd().split('\n')
    t.equal(summary, 'the configuration has 7 problems:')
    t.match(lines, [/^ {2}listen\.port: /, /^ {2}keys\.directory: /, ...inFiles])
  }
  t.match(await runProgram(t, ['config', 'check', ...args]), { code: 2, stderr: /has 2 problems/ })
})

t.test('serve reports a failure in one line, and waits for an issuer until it is stopped', async (t) => {
  const { files } = await prepareFiles(t)
  const args = ['serve', ...serveArgs({ ...files, 'upstream-url': 'http://127.0.0.1:9' })]
  for (const [more, code, stderr] of [
    [['--listen-host', '203.0.113.1'], 1, /^cannot listen on 203\.0\.113\.1: EADDRNOTAVAIL\n$/],
    [['--listen-host', 'nowhere.invalid'], 1, /^cannot listen on nowhere\.invalid: E[A-Z_]+\n$/],
    [['--potr', '3'], 2, /^error: unknown option '--potr'\n\(Did you mean --port\?\)\n$/],
  ] as const) {
    t.match(await runProgram(t, [...args, ...more]), { code, stderr }, more.join(' '))
  }
  const flags = { 'keys-jwks-url': 'http://127.0.0.1:9/keys', 'upstream-url': 'http://127.0.0.1:9' }
  const waiting = startProgram(t, ['serve', ...serveArgs(flags)])
  await waiting.until(() => /JWK Set cannot be used/.test(waiting.stdout()), 'the first fetch')
  waiting.child.kill('SIGTERM')
  t.match(await waiting.ended, { code: 0 })
  t.equal(waiting.stderr(), '')
})
