import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { dirname, join, normalize } from 'node:path'
import { mock } from 'node:test'
import t from 'tap'
import { createApp } from '../src/app.ts'
import { openSources } from '../src/auth/auth-sources.ts'
import { createLog } from '../src/base/log.ts'
import { loadConfig } from '../src/config/load.ts'
import { BreakableClock } from './support/breakable-clock.ts'
import { makeCredentialsFile } from './support/credentials.ts'
import { makeKeyDirectory } from './support/keys.ts'
import { listen } from './support/listen.ts'
import { rawRequest } from './support/raw-client.ts'
import { startSidecar } from './support/sidecar.ts'
import { temporaryDirectory } from './support/temporary-directory.ts'

t.test('an internal error is a 500, is logged and does not end the process', async (t) => {
  const clock = new BreakableClock()
  const sidecar = await startSidecar(t, { now: clock.now, upstreamUrl: 'http://127.0.0.1:9' })
  clock.isBroken = true
  const ask = (bytes: string) => rawRequest(t, sidecar.port, bytes)
  const get = `GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-1\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  t.match(await ask(get), { status: 500, headers: { 'x-request-id': 'r-1' } })
  const body = JSON.stringify(sidecar.logins[0])
  const login = `POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  t.equal((await ask(login)).status, 503, 'a login that could not be checked')
  clock.isBroken = false
  t.equal((await ask(login)).status, 200)
  const err = { type: 'Error', message: 'the clock is broken' }
  t.match(
    sidecar.log.filter(({ level }) => level === 50),
    [
      { msg: 'request failed with an internal error', requestId: 'r-1', err },
      { msg: 'a login could not be checked', err },
    ],
  )
})

function configOf(flags: Record<string, string>) {
  const loaded = loadConfig({ env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9' }, flags })
  if (!loaded.ok) {
    throw new Error(JSON.stringify(loaded.problems))
  }
  return loaded.value.config
}

t.test('a sidecar has no effect before its start, and may be stopped instead', async (t) => {
  let fetches = 0
  const issuer = createServer((_req, res) => {
    fetches++
    res.end()
  })
  const jwksUrl = `http://127.0.0.1:${await listen(t, issuer)}/`
  const lines: string[] = []
  const app = await createApp({
    config: configOf({ '--keys-jwks-url': jwksUrl, '--enforcement': 'report' }),
    log: createLog('info', {
      write: (line) => {
        lines.push(line)
      },
    }),
    processCounts: () => ({ log_lines_dropped_total: 0, uncaught_exceptions_total: 0 }),
  })
  t.strictSame(lines, [])
  t.strictSame(await app.stop(), { drained: 0, cut: 0, tunnels: 0 })
  t.equal(fetches, 0)
})

/** What `openSources` finds with these flags. */
async function read(flags: Record<string, string>) {
  const log = createLog('silent', { write() {} })
  const { problems, warnings } = await openSources({ config: configOf(flags), log, now: Date.now })
  return { problems, warnings }
}

t.test('a database URL that cannot be read is a problem beside those of other files', async (t) => {
  const keys = join(await temporaryDirectory(t), 'missing')
  const { problems } = await read({
    '--keys-directory': keys,
    '--credentials-postgres-url-file': `${keys}.url`,
  })
  t.match(problems, [
    { path: 'keys.directory' },
    {
      path: 'credentials.postgres.urlFile',
      message: `${keys}.url: cannot be read: there is no such file or directory`,
    },
  ])
})

t.test('a file may have more problems than a call has arguments', async (t) => {
  // On a busy machine, reading so many may take more than its 30 s.
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, `revocations: [${'1,'.repeat(130_000)}]`)
  const { problems } = await read({ '--keys-directory': '/none', '--revocations-file': revocations })
  t.equal(problems.filter(({ path }) => path === 'revocations.file').length, 130_000)
})

t.test('what decides on access and every user can write is a warning', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  const { file } = await makeCredentialsFile(t)
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const flags = {
    '--keys-directory': directory,
    '--credentials-file': file,
    '--revocations-file': revocations,
  }
  t.strictSame(await read(flags), { problems: [], warnings: [] })
  const writable = [directory, join(directory, `${kid}.jwk.json`), file, dirname(revocations)]
  for (const path of writable) {
    chmodSync(path, statSync(path).mode | 0o002)
  }
  t.strictSame(
    (await read(flags)).warnings,
    writable.map((path) => `${path} can be written by every user of this machine`),
  )
  chmodSync(dirname(revocations), 0o1777)
  t.equal((await read(flags)).warnings.length, 3, 'others can replace nothing there')
})

t.test('only the list of rooms imports a room', async (t) => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  )
  const importsOf = (file: string) =>
    Array.from(
      readFileSync(join('src', file), 'utf8').matchAll(/(?:from |import\()'(\.[^']+)'/g),
      ([, path = '']) => normalize(join(dirname(file), path)),
    )
  const folderOf = (path: string) => path.split('/')[0]
  const rooms = ['basic', 'fair-use', 'feed', 'oauth', 'tracing']
  const core = ['auth', 'base', 'client', 'config', 'credentials', 'endpoints', 'ops', 'reload', 'token']
  t.same(
    [
      ...new Set(
        importsOf('rooms.ts')
          .filter((path) => path.includes('/'))
          .map(folderOf),
      ),
    ].sort(),
    [...core, ...rooms].sort(),
  )
  for (const file of files) {
    const imported = importsOf(file)
      .map(folderOf)
      .filter((folder) => rooms.includes(folder ?? ''))
    const isOutside = file !== 'rooms.ts' && !rooms.includes(folderOf(file) ?? '')
    if (isOutside && imported.length > 0) {
      t.fail(`${file} imports the room ${imported}`)
    }
  }
  t.ok(files.length > 50)
})
