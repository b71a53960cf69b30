/**
 * rclone's WebDAV backend with `bearer_token_command`, against `rclone serve webdav` behind the sidecar.
 * RCLONE names the program if it is not in PATH.
 */
import { execFile, spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const RCLONE = process.env['RCLONE'] ?? 'rclone'
const FILES = 20
const LIFETIME_SECONDS = 3
const REQUESTS_PER_SECOND = 10

// Without what tap adds to the environment to measure coverage.
const env = { ...process.env, NODE_OPTIONS: '', RCLONE_CONFIG: '/dev/null' }

t.test(
  'rclone keeps copying when tokens expire if refused tokens are 401',
  { skip: without(RCLONE) },
  async (t) => {
    const directory = await temporaryDirectory(t)
    const [source, served] = ['source', 'served'].map((name) => join(directory, name)) as [string, string]
    mkdirSync(source)
    mkdirSync(served)
    for (let file = 0; file < FILES; file++) writeFileSync(join(source, `${file}.txt`), `file ${file}`)

    const port = await freePort()
    const upstreamUrl = `http://127.0.0.1:${port}`
    const server = spawn(RCLONE, ['serve', 'webdav', served, '--addr', `127.0.0.1:${port}`], {
      env,
      stdio: 'ignore',
    })
    t.teardown(() => server.kill())
    await eventually(() => fetch(upstreamUrl).catch(() => undefined), 'rclone serve')

    const sidecar = await startSidecar(t, {
      upstreamUrl,
      settings: {
        'contract-refused-token-status': '401',
        'token-lifetime-seconds': String(LIFETIME_SECONDS),
      },
    })
    const login = join(directory, 'login.mjs')
    writeFileSync(
      login,
      `const response = await fetch('http://127.0.0.1:${sidecar.port}/v2/auth/token', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: ${JSON.stringify(JSON.stringify(sidecar.logins[0]))},
    })
    console.log((await response.json()).token)`,
    )
    const url = `http://127.0.0.1:${sidecar.port}`
    const remote = ['--webdav-url', url, '--webdav-bearer-token-command', `${process.execPath} ${login}`]
    const pace = ['--transfers', '4', '--tpslimit', String(REQUESTS_PER_SECOND), '--tpslimit-burst', '1']
    const { stderr } = await promisify(execFile)(
      RCLONE,
      ['copy', source, ':webdav:/', ...remote, ...pace, '--stats-one-line', '-v'],
      { env },
    )
    t.notMatch(stderr, /ERROR/)
    t.equal(readdirSync(served).length, FILES)
    t.equal(readFileSync(join(served, `${FILES - 1}.txt`), 'utf8'), `file ${FILES - 1}`)
    const refused = sidecar.log.filter(({ status }) => status === 401)
    t.ok(refused.length > 0, 'tokens ended in the meantime')
    t.ok(refused.every(({ reason }) => reason === 'expired'))
    const logins = await sidecar.metric('auth_sidecar_tokens_issued_total')
    t.comment(`${sidecar.log.length} requests, ${refused.length} refused, ${logins} logins`)
  },
)
