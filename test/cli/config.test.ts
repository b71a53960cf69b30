import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { Command } from 'commander'
import t from 'tap'
import { UsageFailure } from '../../src/cli/command-io.ts'
import { addSettingFlags, configCommand, settingsFromCommand } from '../../src/cli/config.ts'
import { configJsonSchema } from '../../src/config/settings.ts'
import { runCommand } from '../support/run-command.ts'

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

t.test('check reports all problems and exits with 2', async (t) => {
  const file = join(t.testdir(), 'sidecar.yaml')
  writeFileSync(file, 'listen: { port: x, host: "" }\n')
  const { failure, stdout } = await run(['check', '--config', file, '--log-level', 'loud'])
  t.equal(failure?.exitCode, 2)
  const [summary, ...lines] = String(failure?.message).split('\n')
  t.equal(summary, 'the configuration has 3 problems:')
  t.strictSame(lines.sort(), [
    `  listen.host: must be an IP address without brackets, or a host name; the port is a setting of its own (${file}:1:26)`,
    `  listen.port: must be an integer from 0 to 65535 (${file}:1:17)`,
    '  log.level: must be one of: trace, debug, info, warn, error, fatal, silent (--log-level)',
  ])
  t.equal(stdout, '')
})

t.test('check --json prints the result as JSON', async (t) => {
  t.strictSame(JSON.parse((await run(['check', '--json'])).stdout), { ok: true, problems: [] })
  const { failure, stdout } = await run(['check', '--json'], {})
  t.equal(failure?.exitCode, 2)
  t.match(JSON.parse(stdout), { ok: false, problems: [{ path: 'upstreams', origin: 'default' }] })
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

t.test('help is readable and has examples', async (t) => {
  for (const command of ['check', 'show', 'schema']) {
    const { stdout } = await run([command, '--help'])
    t.match(stdout, /Examples:/)
    t.notMatch(stdout, /--limits-header-bytes/)
    t.ok(stdout.split('\n').length < 25, command)
  }
  const { stdout } = await run(['check', '--help'])
  t.match(stdout, /--config <file>/)
  t.match(stdout, /Every setting is also a flag/)
})

t.test('a mistyped flag is refused with a suggestion', async (t) => {
  const { failure, stderr } = await run(['check', '--limits-header-byte', '1'])
  t.equal(failure?.exitCode, 2)
  t.match(stderr, /Did you mean --limits-header-bytes\?/)
})

t.test('commands that forward nothing accept the same flags and need no upstream', async (t) => {
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  const settings = (...args: string[]) =>
    settingsFromCommand(addSettingFlags(new Command()).parse(args, { from: 'user' }).opts(), io)
  t.match(settings('--token-lifetime-seconds', '60').config, {
    token: { lifetimeSeconds: 60 },
    upstreams: [],
  })
  t.throws(() => settings('--token-lifetime-seconds', '0'), UsageFailure)
})

t.test('--port is short for --listen-port', async (t) => {
  const { stdout } = await run(['show', '--port', '81', '--admin-port', '82'])
  t.match(stdout, /^listen\.port +81 +flag --port$/m)
  t.match(stdout, /^admin\.port +82 +flag --admin-port$/m)
  t.match((await run(['check', '--port', 'x'])).failure, { message: /listen\.port: must be .* \(--port\)$/m })
  const both = await run(['check', '--port', '1', '--listen-port', '2'])
  t.match(both.failure, { message: /listen\.port: cannot be used with --listen-port \(--port\)$/m })
})
