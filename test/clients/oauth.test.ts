/**
 * Clients of OAuth 2.0, with the recipes of docs/standard-clients.md, over TLS.
 * A test is skipped where its program is missing.
 * What `oauth4webapi` requires of metadata, responses, errors and tokens is checked by its own code.
 */
import { spawn } from 'node:child_process'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { join } from 'node:path'
import * as oauth from 'oauth4webapi'
import * as openid from 'openid-client'
import t, { type Test } from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { NO_SERVER } from '../support/opened-database.ts'
import { buildGo, watchProcess, without } from '../support/other-programs.ts'
import { databaseSetup, startPostgres } from '../support/postgres.ts'
import { NAMES, writePair } from '../support/secured.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const PAGE = readFileSync('docs/standard-clients.md', 'utf8')

/** The code block in this language under a heading of the page. */
function recipe(heading: string, language: string): string {
  const [, section = ''] = PAGE.split(`#### ${heading}\n`)
  const [, code] = new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'ms').exec(section) ?? []
  if (code === undefined) {
    throw new Error(`no recipe in ${language} under ${heading}`)
  }
  return code
}

/** What reached a service. */
interface Seen {
  readonly path: string
  readonly account: string | undefined
}

/** A sidecar whose issuer is the URL at which it serves, and the environment of programs that trust it. */
async function serve(t: Test, service: RequestListener, settings: Record<string, string> = {}) {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const directory = await temporaryDirectory(t)
  writePair(directory, makeCertificate({ commonName: 'sidecar', names: NAMES, issuer: authority }))
  const caFile = join(directory, 'ca.pem')
  writeFileSync(caFile, authority.cert)
  const seen: Seen[] = []
  const upstream = createServer((req, res) => {
    seen.push({ path: req.url ?? '', account: req.headers['x-authenticated-account-id']?.toString() })
    service(req, res)
  })
  const port = await freePort()
  const url = `https://localhost:${port}`
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${await listen(t, upstream)}`,
    credentials: [{ accountId: 'acme', accessKey: 'AK1' }],
    settings: {
      'listen-port': String(port),
      'listen-tls-cert-file': join(directory, 'cert.pem'),
      'listen-tls-key-file': join(directory, 'key.pem'),
      'token-issuer': url,
      'oauth-enabled': 'true',
      ...settings,
    },
  })
  const [{ secret } = { secret: '' }] = sidecar.logins
  const env = {
    ...process.env,
    NODE_OPTIONS: '', // without what tap adds to measure coverage
    NODE_EXTRA_CA_CERTS: caFile,
    SSL_CERT_FILE: caFile,
    REQUESTS_CA_BUNDLE: caFile,
    STORAGE_SECRET: secret,
  }
  const here = (code: string) => code.replaceAll('https://storage.example', url)
  return { url, sidecar, secret, env, directory, seen, here }
}

type Served = Awaited<ReturnType<typeof serve>>

const json = (body: unknown): RequestListener => {
  return (_req, res) => {
    res.setHeader('Content-Type', 'application/json')
    res.end(JSON.stringify(body))
  }
}

/** Runs a program to its end, and returns what it wrote. */
async function run(t: Test, { env, directory }: Served, command: string, ...args: string[]): Promise<string> {
  const child = spawn(command, args, { cwd: directory, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const { stdout, stderr, ended } = watchProcess(t, child)
  const { code } = await ended
  t.equal(code, 0, stderr())
  return stdout().trim()
}

/** The service saw the client's account, and every login was one of OAuth. PyIceberg logs in twice. */
function loggedIn(t: Test, { sidecar, seen }: Served): void {
  const logins = sidecar.log.filter(({ event }) => event === 'login' || event === 'login_failed')
  const kinds = new Set(logins.map(({ event, method, account }) => `${event} ${method} ${account}`))
  t.same([...kinds], ['login oauth acme'])
  t.same([...new Set(seen.map(({ account }) => account))], ['acme'])
}

t.test('Prometheus scrapes with oauth2', { skip: without('prometheus') }, async (t) => {
  const served = await serve(t, (_req, res) => {
    res.setHeader('Content-Type', 'text/plain; version=0.0.4')
    res.end('up_and_running 1\n')
  })
  const { env, directory, url, here, secret, seen } = served
  const secretFile = join(directory, 'secret')
  writeFileSync(secretFile, secret)
  const config = here(recipe('Prometheus', 'yaml'))
    .replace('/etc/prometheus/storage-secret', secretFile)
    .replace('[storage.example]', `[${new URL(url).host}]`)
  const file = join(directory, 'prometheus.yml')
  writeFileSync(file, `global: { scrape_interval: 100ms, scrape_timeout: 100ms }\n${config}`)
  const address = `127.0.0.1:${await freePort()}`
  const args = [`--config.file=${file}`, `--storage.tsdb.path=${directory}/data`]
  const prometheus = spawn('prometheus', [...args, `--web.listen-address=${address}`], { env })
  watchProcess(t, prometheus)
  const scraped = async () => {
    const response = await fetch(`http://${address}/api/v1/query?query=up_and_running`).catch(() => undefined)
    return (await response?.text())?.includes('"1"')
  }
  await eventually(scraped, 'a sample')
  loggedIn(t, served)
  t.equal(seen[0]?.path, '/metrics')
})

const python = (module: string) => without('python3', '-c', `import ${module}`)

t.test('PyIceberg opens a catalog with credential=', { skip: python('pyiceberg') }, async (t) => {
  const catalog: RequestListener = (req, res) => {
    const isConfig = req.url?.startsWith('/v1/config') === true
    const body = isConfig ? { defaults: {}, overrides: {} } : { namespaces: [['photos']] }
    json(body)(req, res)
  }
  const served = await serve(t, catalog, {
    'oauth-token-paths': '["/v2/oauth/token", "/v1/oauth/tokens"]',
    'oauth-ignored-scopes': '["catalog"]',
  })
  const output = await run(
    t,
    served,
    'python3',
    '-W',
    'ignore',
    '-c',
    served.here(recipe('PyIceberg', 'python')),
  )
  t.equal(output, "[('photos',)]")
  loggedIn(t, served)
})

t.test("delta-sharing's OAuth profile", { skip: python('delta_sharing') }, async (t) => {
  const served = await serve(t, json({ items: [{ name: 'photos' }] }))
  const profile = served.here(recipe('Delta Sharing', 'json')).replace('STORAGE_SECRET', served.secret)
  writeFileSync(join(served.directory, 'storage.share'), profile)
  const code =
    'import delta_sharing; print([s.name for s in delta_sharing.SharingClient("storage.share").list_shares()])'
  t.equal(await run(t, served, 'python3', '-W', 'ignore', '-c', code), "['photos']")
  loggedIn(t, served)
})

t.test('Authlib', { skip: python('authlib, requests') }, async (t) => {
  const served = await serve(t, json({}))
  t.equal(await run(t, served, 'python3', '-c', served.here(recipe('Python', 'python'))), '200')
  loggedIn(t, served)
})

t.test('openid-client', async (t) => {
  const served = await serve(t, json({}))
  // The program stands where its imports are found.
  const code = served
    .here(recipe('JavaScript', 'js'))
    .replace("'openid-client'", `'${import.meta.resolve('openid-client')}'`)
  t.equal(await run(t, served, process.execPath, '--input-type=module', '--eval', code), '200')
  loggedIn(t, served)
})

/** Compiles the recipe, and returns why it cannot. */
function buildRecipe(directory: string, code: string): string | false {
  for (const file of ['go.mod', 'go.sum']) {
    copyFileSync(join(import.meta.dirname, 'go', file), join(directory, file))
  }
  writeFileSync(join(directory, 'main.go'), code)
  const built = buildGo(directory, join(directory, 'client'), '.')
  return built.status !== 0 && `go build: ${built.error?.message ?? built.stderr.split('\n', 1)}`
}

const goRecipe = recipe('Go', 'go')
const unbuilt = buildRecipe(await temporaryDirectory(t), goRecipe)

t.test("Go's clientcredentials", { skip: unbuilt }, async (t) => {
  const served = await serve(t, json({}))
  t.equal(buildRecipe(served.directory, served.here(goRecipe)), false)
  t.equal(await run(t, served, './client'), '200')
  loggedIn(t, served)
})

const ISSUER = 'https://auth.example'

/** A sidecar whose issuer has another address for the libraries of this process, and their `fetch`. */
async function issue(t: Test, settings: Record<string, string> = {}) {
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${await listen(t, createServer(json({})))}`,
    credentials: [{ accountId: 'acme', accessKey: 'AK1' }],
    settings: { 'token-issuer': ISSUER, 'oauth-enabled': 'true', ...settings },
  })
  const here = (url: string) => url.replace(ISSUER, `http://127.0.0.1:${sidecar.port}`)
  return {
    sidecar,
    secret: sidecar.logins[0]?.secret ?? '',
    customFetch: (url: string, options: object) => fetch(here(url), options),
  }
}

t.test('the checks of oauth4webapi', async (t) => {
  const { sidecar, secret, customFetch } = await issue(t)
  const issuer = new URL(ISSUER)
  const options = { [oauth.customFetch]: customFetch }
  const discovered = await oauth.discoveryRequest(issuer, { ...options, algorithm: 'oauth2' })
  const server = await oauth.processDiscoveryResponse(issuer, discovered)
  const client = { client_id: 'AK1' }
  const grant = async (authentication: oauth.ClientAuth, scope?: string) => {
    const parameters = new URLSearchParams(scope === undefined ? {} : { scope })
    const response = await oauth.clientCredentialsGrantRequest(
      server,
      client,
      authentication,
      parameters,
      options,
    )
    return oauth.processClientCredentialsResponse(server, client, response)
  }
  const failure = (...asked: Parameters<typeof grant>) => grant(...asked).catch((error: unknown) => error)
  for (const authentication of [oauth.ClientSecretBasic, oauth.ClientSecretPost]) {
    const granted = await grant(authentication(secret))
    t.match(granted, { token_type: 'bearer', expires_in: 86400, scope: undefined })
    const authorization = `Bearer ${granted.access_token}`
    const asked = new Request(`${ISSUER}/bucket`, { headers: { authorization } })
    const claims = await oauth.validateJwtAccessToken(server, asked, 'storage-api', options)
    t.match(claims, { iss: ISSUER, sub: 'acme', client_id: 'AK1' }, 'RFC 9068, with the keys of jwks_uri')
    t.equal((await grant(authentication(secret), 'storage.read:/a')).scope, 'storage.read:/a')
    t.match(await failure(authentication(secret), 'unknown'), { error: 'invalid_scope', status: 400 })
    // The library reads the challenge of a 401, and leaves the body to its caller.
    t.match(await failure(authentication('wr0ng')), {
      name: 'WWWAuthenticateChallengeError',
      status: 401,
      cause: [{ scheme: 'basic', parameters: { realm: 'storage' } }],
    })
  }
  t.match(await failure(oauth.None()), { status: 401 })
  t.notMatch(JSON.stringify(sidecar.log), secret)
})

const postgres = await startPostgres(t)

t.test('openid-client revokes a token', { skip: postgres === undefined && NO_SERVER }, async (t) => {
  if (postgres === undefined) {
    return
  }
  const credentials = [{ accountId: 'acme', accessKey: 'AK1' }]
  const { flags } = await databaseSetup(t, postgres.createDatabase, credentials, 'a secret')
  const { customFetch } = await issue(t, { ...flags, 'contract-logout': 'true' })
  const execute = { algorithm: 'oauth2', [openid.customFetch]: customFetch } as const
  const config = await openid.discovery(new URL(ISSUER), 'AK1', 'a secret', undefined, execute)
  const { access_token: token } = await openid.clientCredentialsGrant(config)
  const statusOf = async () =>
    (await openid.fetchProtectedResource(config, token, new URL('/bucket', ISSUER), 'GET')).status
  t.equal(await statusOf(), 200)
  await openid.tokenRevocation(config, token)
  t.equal(await statusOf(), 400)
})
