import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Command } from 'commander'
import t from 'tap'
import { LogDestination } from '../../src/base/log.ts'
import { checkCommand } from '../../src/cli/check.ts'
import type { CommandIo } from '../../src/cli/command-io.ts'
import { configCommand } from '../../src/cli/config.ts'
import { credentialsCommand, revocationsCommand } from '../../src/cli/credentials.ts'
import { demoCommand } from '../../src/cli/demo.ts'
import { keysCommand } from '../../src/cli/keys.ts'
import { type ProcessContext, serveCommand } from '../../src/cli/serve.ts'
import { tokenCommand } from '../../src/cli/token.ts'
import { SETTINGS } from '../../src/config/settings.ts'
import { listen } from '../support/listen.ts'
import { prepareFiles, runProgram, serveArgs } from '../support/program.ts'
import { runCommand } from '../support/run-command.ts'

const serving: ProcessContext = {
  signals: { listen: () => new Promise(() => {}), beforeExit() {}, onHangUp() {}, onVerbose() {} },
  destination: new LogDestination(),
}
const COMMANDS: Readonly<Record<string, (io: CommandIo) => Command>> = {
  serve: (io) => serveCommand(io, serving),
  demo: (io) => demoCommand(io, serving),
  config: configCommand,
  keys: keysCommand,
  credentials: credentialsCommand,
  revocations: revocationsCommand,
  check: checkCommand,
  token: tokenCommand,
}

t.test('every command and subcommand has help with an example', async (t) => {
  const { stdout } = await runProgram(t, ['--help'])
  const listed = [...stdout.matchAll(/^ {2}([a-z]+) (?:[[<]| {2})/gm)].map(([, name]) => name)
  t.strictSame(
    listed.filter((name) => name !== 'help'),
    Object.keys(COMMANDS),
    'this test knows every command',
  )
  for (const [name, create] of Object.entries(COMMANDS)) {
    const paths: string[][] = [[]]
    await runCommand(
      (io) => {
        const command = create(io)
        paths.push(...command.commands.map((subcommand) => [subcommand.name()]))
        return command
      },
      ['--help'],
    )
    for (const path of paths) {
      const { failure, stdout: help, stderr } = await runCommand(create, [...path, '--help'])
      t.strictSame([failure, stderr], [undefined, ''])
      t.match(
        help,
        new RegExp(`\\n  (?:\\S.*)?storage-auth-sidecar ${name} `),
        `${name} ${path} has an example`,
      )
    }
  }
})

t.test('help is a command, too', async (t) => {
  for (const command of ['help', 'help serve', 'keys help add']) {
    const help = await runProgram(t, command.split(' '))
    t.match(help, { code: 0, stdout: /^Usage: /, stderr: '' }, command)
    const flag = `${command.replace(/ ?help ?/, ' ')} --help`
    t.strictSame(help, await runProgram(t, flag.trim().split(/ +/)))
  }
  t.match(await runProgram(t, ['help', 'canary']), { code: 2, stdout: '', stderr: /^Usage: / })
})

t.test('each setting is in one report if all are wrong', async (t) => {
  const env = Object.fromEntries(SETTINGS.map(({ variable }) => [variable, '\u0007']))
  const { code, stderr } = await runProgram(t, ['config', 'check'], { env })
  t.equal(code, 2)
  for (const { variable } of SETTINGS) {
    t.match(stderr, ` (${variable})\n`)
  }
})

t.test('all problems of the settings, then of the files, are in one report without a secret', async (t) => {
  const k = Buffer.from('canary').toString('base64url')
  const weak = { kty: 'oct', kid: 'weak', alg: 'HS256', use: 'sig', k }
  const directory = t.testdir({
    'sidecar.yaml': `listen:
  port: canary
  tls: { certFile: /none/cert.pem, keyFile: /none/key.pem }
upstreams:
  - { prefix: /, url: https://127.0.0.1:9, caFile: /none/ca.pem }
listen_port: 1
credentials: { file: /none/credentials.yaml }
`,
    keys: {
      'weak.jwk.json': JSON.stringify(weak),
      'pem.jwk.json': '-----BEGIN PRIVATE KEY-----\ncanary\n',
    },
  })
  const config = join(directory, 'sidecar.yaml')
  const keys = join(directory, 'keys')
  const settings = `--config ${config} --keys-directory ${keys} --revocations-file /none/revocations.yaml`
  const env = { SIDECAR_LISTN_PORT: 'canary' }
  const missing = 'cannot be read: there is no such file or directory'
  const inSettings = [
    /^ {2}SIDECAR_LISTN_PORT is not a setting/,
    /^ {2}listen\.port: .*:2:9\)$/,
    /^ {2}listen_port: .*:6:1\)$/,
  ]
  const inFiles = [
    `  keys.directory: ${keys}/pem.jwk.json: holds PEM; a JWK (RFC 7517) is needed (--keys-directory)`,
    `  keys.directory: ${keys}/weak.jwk.json: the secret is shorter than 32 bytes (--keys-directory)`,
    `  credentials.file: /none/credentials.yaml: ${missing}; storage-auth-sidecar credentials add --file /none/credentials.yaml --account ACCOUNT creates it (${config}:7:22)`,
    `  revocations.file: /none/revocations.yaml: ${missing} (--revocations-file)`,
    `  listen.tls.certFile: /none/cert.pem: ${missing} (${config}:3:20)`,
    `  listen.tls.keyFile: /none/key.pem: ${missing} (${config}:3:45)`,
    `  upstreams[0].caFile: /none/ca.pem: ${missing} (${config}:5:52)`,
  ]
  const report = async (command: readonly string[], env: Record<string, string>, expected: unknown[]) => {
    const { code, stdout, stderr } = await runProgram(t, [...command, ...settings.split(' ')], { env })
    t.strictSame([code, stdout], [2, ''])
    const [summary, ...lines] = stderr.trimEnd().split('\n')
    t.equal(summary, `the configuration has ${expected.length} problems:`)
    t.match(lines, expected)
    t.notMatch(stderr, new RegExp(`canary|${k}|^ +at `, 'm'))
  }
  const commands = [['serve'], ['config', 'check', '--files']]
  for (const command of commands) {
    await report(command, env, inSettings)
  }
  writeFileSync(config, readFileSync(config, 'utf8').replace('canary', '0').replace('listen_port: 1', ''))
  for (const command of commands) {
    await report(command, {}, inFiles)
  }
})

t.test('settings are read from a pipe, and at most 1 MiB of them', async (t) => {
  const runner = ['bash', '-c', 'exec "$@" --config <(echo "listen:"; echo "  port: 81")', 'bash']
  const piped = await runProgram(t, ['config', 'show', '--upstream-url', 'http://a'], { runner })
  t.match(piped, { code: 0, stdout: /^listen\.port +81 /m })
  for (const command of [['serve'], ['config', 'check']]) {
    const { code, stderr } = await runProgram(t, [...command, '--config', '/dev/zero'])
    t.equal(code, 2)
    t.match(stderr, 'is larger than 1048576 bytes (/dev/zero)')
  }
})

t.test('serve reports a failure in one line', async (t) => {
  const { files } = await prepareFiles(t)
  const args = ['serve', ...serveArgs({ ...files, 'upstream-url': 'http://127.0.0.1:9' })]
  const taken = String(await listen(t, createServer()))
  const { code, stdout, stderr } = await runProgram(t, [...args, '--listen-port', taken])
  t.strictSame([code, stderr], [1, `port ${taken} is in use (listen.port)\n`])
  t.notMatch(stdout, 'listening')
  for (const [more, exitCode, message] of [
    [['--admin-port', taken], 1, `port ${taken} is in use (admin.port)`],
    [
      ['--listen-host', '203.0.113.1'],
      1,
      /^cannot listen \(listen\.host, listen\.port\): .*EADDRNOTAVAIL.* 203\.0\.113\.1(?::\d+)?$/,
    ],
    [
      ['--listen-host', 'nowhere.invalid'],
      1,
      /^cannot listen \(listen\.host, listen\.port\): getaddrinfo (?:ENOTFOUND|EAI_AGAIN) nowhere\.invalid$/,
    ],
    [
      ['--admin-host', '203.0.113.1'],
      1,
      /^cannot listen \(admin\.host, admin\.port\): .*EADDRNOTAVAIL.* 203\.0\.113\.1(?::\d+)?$/,
    ],
    [['--potr', '3'], 2, /^error: unknown option '--potr'\n\(Did you mean --port\?\)\n$/],
  ] as const) {
    const { failure } = await runCommand((io) => serveCommand(io, serving), [...args.slice(1), ...more])
    t.match(failure, { exitCode, message }, more.join(' '))
  }
  const demo = await runCommand((io) => demoCommand(io, serving), ['--port', taken, '--admin-port', taken])
  t.match(demo.failure, { exitCode: 2, message: 'the ports must differ' })
})

t.test('a message about a wrong option does not repeat its value', async (t) => {
  for (const [make, ...args] of [
    [checkCommand, '--url', 'http://user:canary@example'],
    [credentialsCommand, 'add', '--account', 'acme', "--secret=can'ary"],
    [credentialsCommand, 'add', '--account', 'acme', '--secret-stdin=canary'],
    [keysCommand, 'add', '--directory', 'keys', '--alg', "'canary'\n"],
  ] as const) {
    const { failure, stderr } = await runCommand(make, args)
    t.match(failure, { exitCode: 2 })
    t.match(stderr, /^error: (?:unknown )?option '--[a-z-]+/)
    t.notMatch(stderr, /can/)
  }
})
