import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { CommandFailure, UsageFailure } from '../../src/cli/command-io.ts'
import { type DemoApp, demoCommand } from '../../src/cli/demo.ts'
import type { Config } from '../../src/config/schema.ts'
import { guide } from '../../src/demo/guide.ts'
import { loadKeyRing } from '../../src/keys/key-directory.ts'
import { loadFileStore } from '../support/file-store.ts'
import { freePort } from '../support/free-port.ts'

const LISTENING = {
  data: { address: '127.0.0.1', port: 1234, family: 'IPv4' },
  admin: { address: '127.0.0.1', port: 1235, family: 'IPv4' },
}

/** Runs the command with a sidecar that records what is asked of it; `meanwhile` happens while it runs. */
async function demo(
  t: Test,
  {
    args = ['--port', '0', '--admin-port', '0'],
    directory = join(t.testdir(), '.sidecar'),
    meanwhile = async (_config: Config) => {},
    start = async () => LISTENING,
  },
) {
  const events: string[] = []
  const configs: Config[] = []
  const text = { stdout: '', stderr: '' }
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  io.stdout.on('data', (chunk) => {
    text.stdout += chunk
  })
  io.stderr.on('data', (chunk) => {
    text.stderr += chunk
  })
  const createApp = async (config: Config): Promise<DemoApp> => {
    configs.push(config)
    return {
      start: () => {
        events.push(`start, ${text.stdout.length} characters printed`)
        return start()
      },
      stop: async () => events.push('stop'),
    }
  }
  const stopRequested = async () => {
    events.push('a stop may be requested')
    await once(io.stdout, 'data')
    events.push('serving')
    for (const config of configs) await meanwhile(config)
  }
  const command = demoCommand(io, { createApp, stopRequested, directory, now: () => 1_900_000_000_000 })
  await command.parseAsync(args, { from: 'user' })
  return { directory, events, config: configs[0], ...text }
}

const upstream = (config: Config | undefined) => config?.upstreams[0]?.url.toString() ?? ''

t.test('starts, prints the lines, serves until it is told to stop, stops', async (t) => {
  const { events, stdout, stderr } = await demo(t, {})
  t.strictSame(events, ['a stop may be requested', 'start, 0 characters printed', 'serving', 'stop'])
  t.match(stdout, 'http://127.0.0.1:1234/v2/auth/token')
  t.match(stdout, 'http://127.0.0.1:1235/metrics')
  t.equal(stderr, '')
})

t.test('makes a key that signs and a credential whose secret it prints, for its owner only', async (t) => {
  const { directory, stdout } = await demo(t, {})
  const ring = await loadKeyRing(join(directory, 'keys'))
  t.match(ring, { ok: true, value: { signing: { alg: 'ES256' } } })
  const login = JSON.parse(/-d '(.*?)'/.exec(stdout)?.[1] ?? '')
  const store = await loadFileStore({ file: join(directory, 'credentials.yaml'), now: Date.now })
  t.equal(store.ok && (await store.store.authenticate(login)), 'accepted')
  for (const [name, mode] of [
    ['.', 0o700],
    ['keys', 0o700],
    ['objects', 0o700],
    ['credentials.yaml', 0o600],
    ['sidecar.yaml', 0o600],
    ['hello.txt', 0o600],
  ] as const)
    t.equal(statSync(join(directory, name)).mode & 0o777, mode, name)
})

t.test('a second start makes key and credential anew, and keeps the objects', async (t) => {
  const directory = join(t.testdir(), '.sidecar')
  mkdirSync(directory, { mode: 0o755 })
  const headers = { 'X-Authenticated-Account-Id': 'demo' }
  const first = await demo(t, {
    directory,
    meanwhile: async (config) => {
      await fetch(new URL('/k', upstream(config)), { method: 'PUT', headers, body: 'kept' })
    },
  })
  writeFileSync(join(directory, 'keys', 'broken.jwk.json'), '{')
  let kept = ''
  const second = await demo(t, {
    directory,
    meanwhile: async (config) => {
      kept = await (await fetch(new URL('/k', upstream(config)), { headers })).text()
    },
  })
  t.equal(kept, 'kept')
  t.not(first.stdout, second.stdout)
  t.match(await loadKeyRing(join(directory, 'keys')), { ok: true })
  t.equal(statSync(directory).mode & 0o777, 0o700)
})

t.test('the storage API runs as long as the sidecar does', async (t) => {
  let status = 0
  const { config } = await demo(t, {
    meanwhile: async (config) => {
      status = (await fetch(upstream(config))).status
    },
  })
  t.equal(status, 403, 'it answers, and wants an identity')
  await t.rejects(fetch(upstream(config)))
  const failing = demo(t, { start: async () => Promise.reject(new Error('no')) })
  await t.rejects(failing, { message: 'no' })
})

t.test('tells of a fault of the storage API', async (t) => {
  const { stderr } = await demo(t, {
    meanwhile: async (config) => {
      const objects = config.keys.directory?.replace(/keys$/, 'objects') ?? ''
      writeFileSync(join(objects, 'accounts'), 'in the way')
      await fetch(upstream(config), { headers: { 'X-Authenticated-Account-Id': 'demo' } })
    },
  })
  t.match(stderr, /^storage API: .*ENOTDIR.*\n$/)
})

t.test('listens on loopback, on the ports it is given', async (t) => {
  const port = await freePort()
  const { config } = await demo(t, { args: ['--port', `${port}`, '--admin-port', '0'] })
  t.match(config, { listen: { host: '127.0.0.1', port }, admin: { host: '127.0.0.1', port: 0 } })
})

t.test('says in one line that a port is in use, and touches nothing', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  for (const [args, flag] of [
    [['--port', `${port}`], '--port'],
    [['--port', '0', '--admin-port', `${port}`], '--admin-port'],
  ] as const) {
    const directory = join(t.testdir(), flag)
    const failure = new CommandFailure(
      `port ${port} is in use; choose another with ${flag} (0: any free one)`,
    )
    await t.rejects(demo(t, { args: [...args], directory }), failure)
    t.notOk(existsSync(directory))
  }
})

t.test('says why a port cannot be listened on', async (t) => {
  const { Server } = await import('node:net')
  t.intercept(Server.prototype, 'listen', {
    value(this: InstanceType<typeof Server>) {
      queueMicrotask(() => this.emit('error', Object.assign(new Error(), { code: 'EACCES' })))
      return this
    },
  })
  await t.rejects(demo(t, { args: ['--port', '80'] }), {
    message: /^port 80 cannot be listened on \(EACCES\); /,
  })
})

t.test('refuses arguments that make no sense', async (t) => {
  for (const args of [['--port', '65536'], ['--port', 'x'], ['--admin-port', '-1'], ['--no-such-flag']])
    await t.rejects(demo(t, { args }), { code: /^commander\./ }, args.join(' '))
  const port = `${await freePort()}`
  await t.rejects(demo(t, { args: ['--port', port, '--admin-port', port] }), UsageFailure)
})

t.test('keeps everything in .sidecar under the working directory', async (t) => {
  t.chdir(t.testdir())
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  const app = { start: async () => LISTENING, stop: async () => {} }
  const deps = { createApp: async () => app, stopRequested: async () => {} }
  await demoCommand(io, deps).parseAsync(['--port', '0', '--admin-port', '0'], { from: 'user' })
  t.match(String(io.stdout.read()), `-T '${join(t.testdirName, '.sidecar', 'hello.txt')}'`)
})

t.test('the demo explains itself', async (t) => {
  const io = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  const deps = { createApp: () => Promise.reject(), stopRequested: async () => {} }
  const help = demoCommand(io, deps).parseAsync(['--help'], { from: 'user' })
  await t.rejects(help, { code: 'commander.helpDisplayed' })
  t.match(String(io.stdout.read()), 'storage-auth-sidecar demo --port 9080')
})

t.test('prints comments and complete commands only', async (t) => {
  const login = { accountId: 'demo', accessKey: 'k', secret: 's' }
  const sampleFile = join(t.testdir({ "it's": { 'a file.txt': 'text' } }), "it's", 'a file.txt')
  const lines = guide({ ...LISTENING, login, sampleFile }).split('\n')
  for (const line of lines.filter((line) => line.startsWith('#')))
    t.match(line, /^# [\w .,-]+$/, 'a comment that does no harm where comments are off')
  const upload = lines.find((line) => line.includes('-T ')) ?? ''
  const { stdout } = await promisify(execFile)('sh', ['-c', upload.replace('curl', 'printf "%s\\n"')])
  t.ok(stdout.split('\n').includes(sampleFile), 'any path is one word')
  t.equal(readFileSync(sampleFile, 'utf8'), 'text')
})
