import { PassThrough } from 'node:stream'
import { Command } from 'commander'
import t from 'tap'
import { UsageFailure } from '../../src/cli/command-io.ts'
import { addSettingFlags, configCommand, loadSettings, usable } from '../../src/cli/config.ts'
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

t.test('a mistyped flag is refused with a suggestion', async (t) => {
  const { failure, stderr } = await run(['check', '--limits-header-byte', '1'])
  t.equal(failure?.exitCode, 2)
  t.match(stderr, /Did you mean --limits-header-bytes\?/)
})

t.test('commands that forward nothing accept the same flags and need no upstream', async (t) => {
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  const settings = (...args: string[]) =>
    usable(loadSettings(addSettingFlags(new Command()).parse(args, { from: 'user' }).opts(), io, false))
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
