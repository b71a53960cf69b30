/**
 * Programs behind the sidecar: rclone (RCLONE names it if it is not in PATH) with `bearer_token_command`,
 * against `rclone serve webdav`; WebDAV servers and a `Destination: https://...` that reaches them over plain
 * HTTP (docs/known-clients.md); go-jose and x/oauth2 (go/main.go), skipped unless Go's module cache has them:
 * `go mod download` in test/clients/go.
 */
import { execFile, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import t from 'tap'
import { APACHE, apacheConfig } from '../support/apache.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { buildGo, without } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { goodClaims } from '../support/tokens.ts'

const RCLONE = process.env['RCLONE'] ?? 'rclone'
const FILES = 20
const LIFETIME_SECONDS = 60
/** All tokens have ended after so many requests: of the sidecar's clock, not of the machine's. */
const REQUESTS_IN_LIFETIME = 10

// Without what tap adds to the environment to measure coverage.
const env = { ...process.env, NODE_OPTIONS: '', RCLONE_CONFIG: '/dev/null' }

t.test(
  'rclone keeps copying when tokens expire if refused tokens are 401',
  { skip: without(RCLONE) },
  async (t) => {
    const directory = await temporaryDirectory(t)
    const source = join(directory, 'source')
    const served = join(directory, 'served')
    mkdirSync(source)
    mkdirSync(served)
    for (let file = 0; file < FILES; file++) {
      writeFileSync(join(source, `${file}.txt`), `file ${file}`)
    }

    const port = await freePort()
    const upstreamUrl = `http://127.0.0.1:${port}`
    const server = spawn(RCLONE, ['serve', 'webdav', served, '--addr', `127.0.0.1:${port}`], {
      env,
      stdio: 'ignore',
    })
    t.teardown(() => server.kill())
    await eventually(() => fetch(upstreamUrl).catch(() => undefined), 'rclone serve')

    let requests = () => 0
    const sidecar = await startSidecar(t, {
      upstreamUrl,
      now: () => Date.now() + Math.floor(requests() / REQUESTS_IN_LIFETIME) * LIFETIME_SECONDS * 1000,
      settings: {
        'contract-refused-token-status': '401',
        'token-lifetime-seconds': String(LIFETIME_SECONDS),
      },
    })
    requests = () => sidecar.log.filter(({ status }) => Number(status) < 300).length
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
    const { stderr } = await promisify(execFile)(
      RCLONE,
      ['copy', source, ':webdav:/', ...remote, '--stats-one-line', '-v'],
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

const snippet = (language: string) =>
  readFileSync('docs/known-clients.md', 'utf8').split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? ''

interface Server {
  readonly program: string
  readonly args: readonly string[]
  readonly refusedStatus: number
  /** A complete configuration; ports 9000 and 9001 are replaced. */
  readonly config: (advice: string, directory: string) => string
}

const SERVERS: Readonly<Record<string, Server>> = {
  apache: { program: APACHE, args: ['-DFOREGROUND', '-f'], refusedStatus: 502, config: apacheConfig },
  nginx: {
    program: '/usr/sbin/nginx',
    args: ['-e', 'stderr', '-g', 'daemon off;', '-c'],
    refusedStatus: 400,
    config: (advice, directory) => {
      const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
        (kind) => `${kind}_temp_path ${directory}/${kind};`,
      )
      const port = advice === '' ? 9000 : 9001
      return `pid ${directory}/pid; events {} http { access_log off; ${paths.join(' ')} ${advice}
        server { listen 127.0.0.1:${port}; root ${directory}/files; dav_methods PUT COPY MOVE; } }`
    },
  },
}

for (const [name, { program, args, refusedStatus, config }] of Object.entries(SERVERS)) {
  t.test(`${name} copies and moves to https as documented`, { skip: without(program) }, async (t) => {
    for (const advice of ['', snippet(name)]) {
      const directory = await temporaryDirectory(t)
      mkdirSync(join(directory, 'files'))
      for (const path of [directory, join(directory, 'files')]) {
        chmodSync(path, 0o777) // the servers' workers are other users
      }
      const ports = [await freePort(), await freePort()]
      const file = join(directory, 'config')
      writeFileSync(
        file,
        config(advice, directory).replaceAll(/\b900([01])\b/g, (_, at) => String(ports[at])),
      )
      const server = spawn(program, [...args, file], { stdio: 'ignore' })
      t.teardown(() => server.kill())
      const upstreamUrl = `http://127.0.0.1:${ports[0]}`
      await eventually(() => fetch(upstreamUrl).catch(() => undefined), name)
      const { port, token } = await startSidecar(t, { upstreamUrl })
      const ask = async (method: string, path: string, destination = '', body?: string) => {
        const headers = { Authorization: `Bearer ${token}`, ...(destination && { Destination: destination }) }
        const response = await fetch(`http://127.0.0.1:${port}${path}`, {
          method,
          headers,
          body: body ?? null,
        })
        return [response.status, await response.text()] as const
      }
      await ask('PUT', '/a%20b', '', 'content')
      const [copied] = await ask('COPY', '/a%20b', `https://127.0.0.1:${port}/c%25d`)
      if (advice === '') {
        t.equal(copied, refusedStatus, 'without it, the destination is another server')
        continue
      }
      t.ok(copied < 300)
      const [moved] = await ask('MOVE', '/c%25d', `https://127.0.0.1:${port}/%C3%BC`)
      t.ok(moved < 300)
      t.equal((await ask('GET', '/c%25d'))[0], 404)
      t.strictSame(await ask('GET', '/%C3%BC'), [200, 'content'])
      if (name === 'nginx') {
        t.equal((await ask('COPY', '/a%20b', 'https://other.example/x'))[0], 400)
      }
    }
  })
}

const program = join(await temporaryDirectory(t), 'client')
const built = buildGo(join(import.meta.dirname, 'go'), program, '.')
const unbuilt = built.status !== 0 && `go build: ${built.error?.message ?? built.stderr.split('\n', 1)}`

t.test(
  'go-jose and x/oauth2 understand the sidecar, and it understands them',
  { skip: unbuilt },
  async (t) => {
    const go = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] })
    t.teardown(() => go.kill('SIGKILL'))
    const lines = createInterface({ input: go.stdout })[Symbol.asyncIterator]()
    const ask = async (what: object) => {
      go.stdin.write(JSON.stringify(what))
      return JSON.parse((await lines.next()).value ?? '')
    }
    const jwks = (await lines.next()).value
    const keySet = createServer((_req, res) => res.end(jwks))
    const jwksUrl = `http://127.0.0.1:${await listen(t, keySet)}`
    const upstream = await recordingUpstream(t)
    const issuer = 'https://go.example'
    const entry = { issuer, jwksUrl, audience: 'for-storage', accounts: { runner: 'acme' } }
    const options = { 'identity-assertion-enabled': 'true', 'links-enabled': 'true' }
    const settings = { ...options, 'trusted-issuers': JSON.stringify([entry]) }
    const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
    const url = `http://127.0.0.1:${sidecar.port}/o`
    const sign = (aud: string): Promise<string> =>
      ask({ claims: { ...goodClaims(), iss: issuer, sub: 'runner', jti: 'j', aud } })
    const token = await sign('for-storage')
    const client = sidecarClient(sidecar)
    await eventually(async () => (await client.check(token)) === 'ok', 'the key set')
    t.equal(await ask({ url, token: sidecar.token }), 200)
    t.equal(await ask({ url, token: await sign('other') }), 400)
    t.equal(await ask({ url, token }), 200)
    const { headers } = upstream.requests.at(-1) ?? {}
    t.match(headers, { 'x-authenticated-account-id': 'acme', 'x-authenticated-access-key': 'runner' })

    const made = await client.link(token, 'GET', '/o')
    const link = new URL(made.url, url).searchParams.get('link_token')
    const published = await fetch(`http://127.0.0.1:${sidecar.adminPort}/.well-known/jwks.json`)
    const keys: unknown = await published.json()
    for (const [signed, claims] of [
      [sidecar.token, { sub: 'acme', aud: 'storage-api' }],
      [link, { sub: 'acme', parent_jti: 'j', target: '/o' }],
      [headers?.['x-authenticated-assertion'], { sub: 'acme', client_id: 'runner', jti: 'j' }],
    ] as const) {
      t.match(await ask({ keys, token: signed }), claims)
    }
  },
)
