import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { CommanderError } from 'commander'
import t from 'tap'
import type { App } from '../../src/app.ts'
import { CommandFailure, UsageFailure } from '../../src/cli/command-io.ts'
import { serveCommand } from '../../src/cli/serve.ts'
import type { StopSignal } from '../../src/cli/signals.ts'
import { StoppedWhileStarting } from '../../src/ops/life-cycle.ts'
import { UnusableTrust } from '../../src/trust.ts'

const UPSTREAM = ['--upstream-url', 'http://127.0.0.1:9000']

/** Runs `serve` with an app that notes what is done to it. */
async function serve(
  args: readonly string[],
  how: {
    readonly signal?: StopSignal | Promise<StopSignal>
    readonly create?: () => Promise<void>
    readonly start?: () => Promise<void>
    readonly cut?: number
  } = {},
) {
  const done: unknown[] = []
  const address = { address: '127.0.0.1', family: 'IPv4', port: 1 }
  const app: App = {
    async start() {
      await how.start?.()
      done.push('start')
      return { data: address, admin: address }
    },
    async reload() {
      done.push('reload')
    },
    async stop(options) {
      done.push({ stop: options })
      return { drained: 0, cut: how.cut ?? 0 }
    },
  }
  const stdout = new PassThrough()
  const stderr = new PassThrough()
  const command = serveCommand(
    { stdin: new PassThrough(), stdout, stderr, env: {} },
    {
      async createApp(config) {
        await how.create?.()
        done.push({ create: config.upstreams[0]?.url })
        return app
      },
      stopRequested: async () => how.signal ?? 'SIGTERM',
    },
  )
  const failure = await command.parseAsync([...args], { from: 'user' }).then(
    () => undefined,
    (error: unknown) => error,
  )
  stdout.end()
  stderr.end()
  return { done, failure, stdout: await text(stdout), stderr: await text(stderr) }
}

/** A signal that comes when the test says. */
function laterSignal() {
  let send: (signal: StopSignal) => void = () => {}
  const signal = new Promise<StopSignal>((resolve) => {
    send = resolve
  })
  return { signal, send }
}

t.test('runs until a signal comes; SIGTERM with a lame duck, SIGINT without', async (t) => {
  for (const name of ['SIGTERM', 'SIGINT'] as const) {
    const { signal, send } = laterSignal()
    const start = async () => void setImmediate(send, name)
    const { done, failure } = await serve(UPSTREAM, { signal, start })
    t.equal(failure, undefined)
    t.strictSame(done, [
      { create: 'http://127.0.0.1:9000' },
      'start',
      { stop: { lameDuck: name === 'SIGTERM' } },
    ])
  }
})

t.test('a signal that comes before anything listens keeps it from listening', async (t) => {
  const { done, failure } = await serve(UPSTREAM, { signal: 'SIGTERM', create: async () => {} })
  t.equal(failure, undefined)
  t.notOk(done.includes('start'))
})

t.test('a signal while the sidecar waits for another issuer or a database is no failure', async (t) => {
  const { signal, send } = laterSignal()
  const start = async () => {
    send('SIGTERM')
    throw new StoppedWhileStarting('stopped before anything was let in')
  }
  const { done, failure } = await serve(UPSTREAM, { signal, start })
  t.equal(failure, undefined)
  t.strictSame(done.slice(1), [{ stop: { lameDuck: true } }])
})

t.test('aborted requests are a failure', async (t) => {
  const { failure } = await serve(UPSTREAM, { cut: 3 })
  t.type(failure, CommandFailure)
  t.match(failure, { exitCode: 1, message: /aborted.*: 3$/ })
})

t.test('a port or address that cannot be listened on is a failure of one line', async (t) => {
  const { signal } = laterSignal()
  for (const [facts, message] of [
    [{ code: 'EADDRINUSE', syscall: 'listen', address: '0.0.0.0', port: 8080 }, 'port 8080 is in use'],
    [
      { code: 'EACCES', syscall: 'listen', address: '0.0.0.0', port: 80 },
      'cannot listen on 0.0.0.0 port 80: EACCES',
    ],
    [
      { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: 'nowhere' },
      'cannot listen on nowhere: ENOTFOUND',
    ],
  ] as const) {
    const start = () => Promise.reject(Object.assign(new Error('in Node’s words'), facts))
    const { failure } = await serve(UPSTREAM, { signal, start })
    t.type(failure, CommandFailure, message)
    t.match(failure, { message })
  }
})

t.test('files that cannot be used are a matter of configuration', async (t) => {
  const create = () =>
    Promise.reject(new UnusableTrust([{ path: 'keys.directory', message: 'k', origin: 'default' }]))
  const { failure, done } = await serve(UPSTREAM, { create })
  t.type(failure, UsageFailure)
  t.match(failure, { exitCode: 2, message: 'the configuration has 1 problem:\n  keys.directory: k' })
  t.strictSame(done, [])
  const { signal } = laterSignal()
  const waited = await serve(UPSTREAM, { signal, start: create })
  t.type(waited.failure, UsageFailure, 'also where that shows when a database answers at last')
  t.match(waited.failure, { exitCode: 2, message: 'the configuration has 1 problem:\n  keys.directory: k' })
})

t.test('a flag that there is not is refused before anything is read', async (t) => {
  const { stderr, failure, done } = await serve(['--potr', '3'])
  t.equal(stderr, "error: unknown option '--potr'\n(Did you mean --port?)\n")
  t.type(failure, CommanderError)
  t.strictSame(done, [])
})
