import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { stringify } from 'yaml'
import { eventually } from './support/eventually.ts'
import { prepareFiles, runProgram, serve, serveArgs, startProgram } from './support/program.ts'
import { rawRequest } from './support/raw-client.ts'

t.test('exit codes are 0 and 2, and no stack trace is printed', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  const cases: readonly (readonly [args: string, code: number, output: RegExp])[] = [
    ['--version', 0, new RegExp(`^${version.replaceAll('.', '\\.')}\n$`)],
    ['', 2, /^Usage: storage-auth-sidecar /],
    ['fly', 2, /^error: unknown command 'fly'\n$/],
    ['config check --config /nowhere', 2, /^the configuration has 1 problem:\n.*\n$/],
  ]
  await Promise.all(
    cases.map(async ([args, code, output]) => {
      const outcome = await runProgram(t, args === '' ? [] : args.split(' '))
      t.equal(outcome.code, code, args)
      t.match(code === 0 ? outcome.stdout : outcome.stderr, output, args)
      t.equal(code === 0 ? outcome.stderr : outcome.stdout, '', args)
      t.notMatch(outcome.stderr, /^ +at /m, args)
    }),
  )
})

t.test('all problems are printed, even if they are read slowly', async (t) => {
  const file = join(t.testdir({}), 'credentials.yaml')
  writeFileSync(file, JSON.stringify({ accounts: Array(5000).fill(1) }), { mode: 0o600 })
  const program = startProgram(t, ['credentials', 'list', '--file', file])
  program.child.stderr?.pause()
  await eventually(() => program.child.stderr?.readableLength, 'the beginning')
  program.child.stderr?.resume()
  t.match(await program.ended, { code: 2 })
  t.equal(program.stderr().match(/\n/g)?.length, 5000)
})

t.test('all output is printed, even if it is read slowly', async (t) => {
  const file = join(t.testdir({}), 'credentials.yaml')
  const accounts = Array.from({ length: 3000 }, (_, at) => ({
    accountId: `account-${at}`,
    credentials: [{ accessKey: 'AK', secretHash: `$sha256$${'A'.repeat(43)}` }],
  }))
  writeFileSync(file, stringify({ accounts }), { mode: 0o600 })
  const program = startProgram(t, ['credentials', 'list', '--json', '--file', file])
  program.child.stdout?.pause()
  // The pipe holds 64 KiB: the program has more output and must wait.
  await eventually(() => program.child.stdout?.readableLength, 'the beginning')
  await new Promise((resolve) => setTimeout(resolve, 300))
  t.equal(program.child.exitCode, null)
  program.child.stdout?.resume()
  t.equal((await program.ended).code, 0)
  t.equal(JSON.parse(program.stdout()).length, 3000)
})

t.test('output lost to a full disk is a failure, as it may be a new secret', async (t) => {
  const full = openSync('/dev/full', 'w')
  t.teardown(() => closeSync(full))
  const file = join(t.testdir({}), 'credentials.yaml')
  for (const args of [
    ['config', 'schema'],
    ['credentials', 'add', '--file', file, '--account', 'acme'],
  ]) {
    const program = startProgram(t, args, { stdio: ['ignore', full, 'pipe'] })
    t.equal((await program.ended).code, 1)
    t.equal(program.stderr(), 'stdout cannot be written: the disk is full\n')
  }
})

t.test('output whose reader has gone is a failure, too', async (t) => {
  const file = join(t.testdir({}), 'credentials.yaml')
  const program = startProgram(t, ['credentials', 'add', '--file', file, '--account', 'acme'])
  program.child.stdout?.destroy()
  t.equal((await program.ended).code, 1)
  t.equal(program.stderr(), 'stdout cannot be written: its reader closed it\n')
})

t.test('an uncaught exception is logged, counted and does not end the process', async (t) => {
  const { files } = await prepareFiles(t)
  const fault = "process.on('SIGUSR2', () => { throw new Error('not caught') })"
  const sidecar = await serve(
    t,
    { ...files, 'upstream-url': 'http://127.0.0.1:9' },
    { nodeArgs: [`--import=data:text/javascript,${encodeURIComponent(fault)}`] },
  )
  sidecar.child.kill('SIGUSR2')
  await sidecar.until(() => sidecar.log().some(({ msg }) => msg === 'uncaught exception'), 'the line')
  t.match(sidecar.log().at(-1), { level: 60, msg: 'uncaught exception', err: { message: 'not caught' } })
  const metrics = await fetch(`http://127.0.0.1:${sidecar.adminPort}/metrics`)
  t.match(await metrics.text(), 'auth_sidecar_uncaught_exceptions_total 1')
  t.equal((await rawRequest(t, sidecar.port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n')).status, 400)
  sidecar.child.kill('SIGINT')
  t.match(await sidecar.ended, { code: 0 })
})

t.test('SIGINT stops the demo cleanly, also if npm and the terminal both send it', async (t) => {
  const demo = startProgram(t, ['demo', '--port', '0', '--admin-port', '0'], {
    cwd: t.testdir({}),
    env: { npm_lifecycle_event: 'start' },
  })
  await demo.until(() => /curl/.test(demo.stdout()), 'its lines')
  const [, port] = /http:\/\/127\.0\.0\.1:(\d+)/.exec(demo.stdout()) ?? []
  const socket = connect(Number(port), '127.0.0.1')
  await eventually(() => socket.readyState === 'open', 'a connection')
  socket.destroy()
  demo.child.kill('SIGINT')
  demo.child.kill('SIGINT')
  t.match(await demo.ended, { code: 0 })
})

/** Makes the program send itself signals while it loads the given module. */
function signalledAtLoadOf(module: string, signals: readonly string[]): string[] {
  const hooks = `export const load = (url, context, next) => {
    if (url.includes('/${module}')) {
      for (const signal of ${JSON.stringify(signals)}) {
        process.kill(process.pid, signal)
      }
    }
    return next(url, context)
  }`
  const dataUrl = (source: string) => `data:text/javascript,${encodeURIComponent(source)}`
  return [
    '--disable-warning=DEP0205', // the deprecation of `register`
    `--import=${dataUrl(`import { register } from 'node:module'; register(${JSON.stringify(dataUrl(hooks))})`)}`,
  ]
}

t.test('signals during module loading', async (t) => {
  const { files } = await prepareFiles(t)
  const flags = { ...files, 'upstream-url': 'http://127.0.0.1:9' }
  for (const [module, signal] of [
    ['commander/esm.mjs', 'SIGTERM'],
    ['dist/app.js', 'SIGINT'],
  ] as const) {
    await t.test(`${signal} at ${module} stops the program before it listens`, async (t) => {
      const nodeArgs = signalledAtLoadOf(module, [signal])
      const program = startProgram(t, ['serve', ...serveArgs(flags)], { nodeArgs })
      t.match(await program.ended, { code: 0, signal: null })
      t.notOk(program.log().some(({ msg }) => msg === 'listening'))
      t.equal(program.stderr(), '')
    })
  }

  await t.test('SIGHUP ends neither the primary nor its workers', async (t) => {
    const sidecar = await serve(
      t,
      { ...flags, workers: 'auto', 'shutdown-lame-duck-seconds': '0' },
      { nodeArgs: signalledAtLoadOf('commander/esm.mjs', ['SIGHUP']) },
    )
    sidecar.child.kill('SIGTERM')
    t.match(await sidecar.ended, { code: 0, signal: null })
  })

  await t.test('a second signal ends the program at once', async (t) => {
    const nodeArgs = signalledAtLoadOf('commander/esm.mjs', ['SIGTERM', 'SIGINT'])
    const program = startProgram(t, ['serve', ...serveArgs(flags)], { nodeArgs })
    t.match(await program.ended, { code: 1, signal: null })
  })

  await t.test('a signal ends a one-shot command', async (t) => {
    const nodeArgs = signalledAtLoadOf('commander/esm.mjs', ['SIGTERM'])
    // Without coverage: its hooks handle signals, too, and on Node 26 swallow this one.
    const program = startProgram(t, ['config', 'schema'], { nodeArgs })
    t.match(await program.ended, { signal: 'SIGTERM' })
  })
})
