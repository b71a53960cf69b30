/**
 * The recipes of docs/known-clients.md for programs that send a token which they are given,
 * each run with the real program. A test is skipped where its program is missing.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const BAD_TOKEN = 'no-token'

/** Runs a program to its end. */
async function run(
  t: Test,
  command: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
) {
  // Without what tap adds to the environment to measure coverage.
  const env = { ...process.env, NODE_OPTIONS: '', ...options.env }
  const child = spawn(command, args, { ...options, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const { stdout, stderr, ended } = watchProcess(t, child)
  const { code } = await ended
  return { code, output: stdout() + stderr() }
}

/** A sidecar in front of a service; `status` is that of a refused token. */
async function serviceBehindSidecar(t: Test, service: RequestListener, status: 400 | 401 = 400) {
  const upstreamPort = await listen(t, createServer(service))
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${upstreamPort}`,
    settings: { 'contract-refused-token-status': String(status) },
  })
  return { url: `http://127.0.0.1:${sidecar.port}`, port: sidecar.port, token: sidecar.token }
}

/** A service with one file at every path, and ranges of it. */
const fileService =
  (content: Buffer): RequestListener =>
  (req, res) => {
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? '') ?? []
    const end = last ? Math.min(Number(last) + 1, content.length) : content.length
    const part = content.subarray(Number(first ?? 0), end)
    res.setHeader('Content-Length', part.length)
    res.setHeader('Accept-Ranges', 'bytes')
    if (first !== undefined) {
      res.setHeader('Content-Range', `bytes ${first}-${end - 1}/${content.length}`)
      res.statusCode = 206
    }
    res.end(req.method === 'HEAD' ? undefined : part)
  }

/** A service that keeps what is put, and calls back for everything else. */
function objectService(other: RequestListener = (_req, res) => res.writeHead(404).end()) {
  const objects = new Map<string | undefined, Buffer>()
  const service: RequestListener = async (req, res) => {
    const stored = objects.get(req.url)
    if (req.method === 'PUT') {
      objects.set(req.url, Buffer.concat(await req.toArray()))
      res.setHeader('ETag', '"1"')
      res.end()
    } else if (stored === undefined) {
      other(req, res)
    } else {
      res.end(stored)
    }
  }
  return { objects, service }
}

t.test('npm installs from a registry, with the token in .npmrc', async (t) => {
  const directory = await temporaryDirectory(t)
  const packed = join(directory, 'packed')
  mkdirSync(packed)
  writeFileSync(join(packed, 'package.json'), '{"name":"made-for-a-test","version":"1.0.0"}')
  await run(t, 'npm', ['pack', '--silent'], { cwd: packed })
  const tarball = readFileSync(join(packed, 'made-for-a-test-1.0.0.tgz'))
  const service: RequestListener = (req, res) => {
    if (req.url?.endsWith('.tgz')) {
      res.end(tarball)
      return
    }
    const shasum = createHash('sha1').update(tarball).digest('hex')
    const dist = { tarball: `http://${req.headers.host}/npm/made-for-a-test-1.0.0.tgz`, shasum }
    const version = { name: 'made-for-a-test', version: '1.0.0', dist }
    const versions = { '1.0.0': version }
    res.end(JSON.stringify({ name: 'made-for-a-test', 'dist-tags': { latest: '1.0.0' }, versions }))
  }
  for (const status of [400, 401] as const) {
    const { port, token } = await serviceBehindSidecar(t, service, status)
    const project = join(directory, String(status))
    mkdirSync(project)
    writeFileSync(join(project, 'package.json'), '{}')
    const registry = `127.0.0.1:${port}/npm/`
    const authorization = `//${registry}:_authToken=\${STORAGE_TOKEN}`
    writeFileSync(join(project, '.npmrc'), `registry=http://${registry}\n${authorization}\n`)
    const npm = (storageToken: string, ...args: readonly string[]) => {
      const options = [
        '--no-audit',
        '--no-fund',
        '--fetch-retries=0',
        `--cache=${project}/cache-${storageToken.length}`,
      ]
      return run(t, 'npm', [...args, ...options], { cwd: project, env: { STORAGE_TOKEN: storageToken } })
    }
    if (status === 400) {
      const installed = await npm(token, 'install', 'made-for-a-test')
      t.equal(installed.code, 0, installed.output)
      t.ok(existsSync(join(project, 'node_modules/made-for-a-test/package.json')))
    }
    const refused = await npm(BAD_TOKEN, 'view', 'made-for-a-test')
    t.match(refused, { code: 1, output: status === 400 ? /E400/ : /E401/ })
  }
})

t.test(
  'git-lfs pushes and fetches with http.extraHeader',
  { skip: without('git', 'lfs', 'version') },
  async (t) => {
    const { service } = objectService(async (req, res) => {
      const body: unknown = JSON.parse(String(Buffer.concat(await req.toArray())) || '{}')
      if (!req.url?.endsWith('/objects/batch')) {
        res.end('{"ours":[],"theirs":[]}')
        return
      }
      const { operation, objects } = Object(body)
      const withActions = objects.map((object: { readonly oid: string }) => {
        const action = { href: `http://${req.headers.host}/objects/${object.oid}` }
        return { ...object, authenticated: true, actions: { [operation]: action } }
      })
      res.setHeader('Content-Type', 'application/vnd.git-lfs+json')
      res.end(JSON.stringify({ transfer: 'basic', objects: withActions }))
    })
    const { url, token } = await serviceBehindSidecar(t, service)
    const cwd = await temporaryDirectory(t)
    const git = (...args: readonly string[]) =>
      run(t, 'git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd })
    await git('init', '--quiet')
    await git('lfs', 'install', '--local')
    await git('lfs', 'track', '*.bin')
    writeFileSync(join(cwd, 'large.bin'), 'large')
    await git('add', '--all')
    await git('commit', '--quiet', '--message', 'add')
    await git('remote', 'add', 'origin', `${url}/repository`)
    await git('config', 'lfs.url', `${url}/repository/info/lfs`)
    const setToken = (text: string) =>
      git('config', `http.${url}/.extraHeader`, `Authorization: Bearer ${text}`)
    await setToken(token)
    const pushed = await git('lfs', 'push', '--all', 'origin')
    t.equal(pushed.code, 0, pushed.output)
    await run(t, 'rm', ['-r', join(cwd, '.git/lfs/objects')])
    const fetched = await git('lfs', 'fetch', '--all')
    t.equal(fetched.code, 0, fetched.output)
    t.ok(existsSync(join(cwd, '.git/lfs/objects')))
    await run(t, 'rm', ['-r', join(cwd, '.git/lfs/objects')])
    await setToken(BAD_TOKEN)
    t.match(await git('lfs', 'fetch', '--all'), { code: 2, output: /batch response: Token is not valid/ })
  },
)

/** An image in the directory layout of skopeo, with one layer. */
function writeImage(directory: string): void {
  const put = (bytes: Buffer) => {
    const hex = createHash('sha256').update(bytes).digest('hex')
    writeFileSync(join(directory, hex), bytes)
    return { size: bytes.length, digest: `sha256:${hex}` }
  }
  const layer = put(Buffer.alloc(1024)) // an empty tar archive
  const rootfs = { type: 'layers', diff_ids: [layer.digest] }
  const config = put(Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs, config: {} })))
  const docker = 'application/vnd.docker'
  const manifest = {
    schemaVersion: 2,
    mediaType: `${docker}.distribution.manifest.v2+json`,
    config: { mediaType: `${docker}.container.image.v1+json`, ...config },
    layers: [{ mediaType: `${docker}.image.rootfs.diff.tar`, ...layer }],
  }
  writeFileSync(join(directory, 'manifest.json'), JSON.stringify(manifest))
  writeFileSync(join(directory, 'version'), 'Directory Transport Version: 1.1\n')
}

t.test(
  'skopeo copies an image to a registry if refused tokens are 401',
  { skip: without('skopeo') || without('docker-registry') },
  async (t) => {
    const directory = await temporaryDirectory(t)
    const registryPort = await freePort()
    const registryUrl = `http://127.0.0.1:${registryPort}`
    const settings = {
      version: '0.1',
      storage: { filesystem: { rootdirectory: join(directory, 'registry') } },
      http: { addr: `127.0.0.1:${registryPort}` },
    }
    writeFileSync(join(directory, 'registry.yml'), JSON.stringify(settings))
    const registry = spawn('docker-registry', ['serve', join(directory, 'registry.yml')], { stdio: 'ignore' })
    watchProcess(t, registry)
    await eventually(() => fetch(registryUrl).catch(() => undefined), 'the registry')
    const image = join(directory, 'image')
    mkdirSync(image)
    writeImage(image)
    for (const status of [401, 400] as const) {
      const { port, token } = await startSidecar(t, {
        upstreamUrl: registryUrl,
        settings: { 'contract-refused-token-status': String(status) },
      })
      const name = `docker://127.0.0.1:${port}/a:1`
      const copy = (text: string) => {
        const flags = ['--insecure-policy', 'copy', '--dest-tls-verify=false', '--dest-registry-token', text]
        return run(t, 'skopeo', [...flags, `dir:${image}`, name])
      }
      const copied = await copy(token)
      if (status === 400) {
        t.match(copied, { code: 1, output: /invalid status code from registry 400/ })
        continue
      }
      t.equal(copied.code, 0, copied.output)
      t.match(await copy(BAD_TOKEN), { code: 1, output: /unauthorized|401/ })
    }
  },
)

t.test('GDAL reads a raster by ranges with GDAL_HTTP_HEADERS', { skip: without('gdalinfo') }, async (t) => {
  const directory = await temporaryDirectory(t)
  const file = join(directory, 'a.tif')
  await run(t, 'gdal_create', ['-of', 'GTiff', '-outsize', '64', '32', '-burn', '7', file])
  const { url, token } = await serviceBehindSidecar(t, fileService(readFileSync(file)))
  const read = (text: string) => {
    const env = {
      GDAL_HTTP_HEADERS: `Authorization: Bearer ${text}`,
      GDAL_DISABLE_READDIR_ON_OPEN: 'EMPTY_DIR',
    }
    return run(t, 'gdalinfo', [`/vsicurl/${url}/a.tif`], { env })
  }
  t.match(await read(token), { code: 0, output: /Size is 64, 32/ })
  t.match(await read(BAD_TOKEN), { code: 1, output: /HTTP response code: 400/ })
})

t.test(
  'wget2 exits with 0 for a refusal of 400, and not for one of 401',
  { skip: without('wget2') },
  async (t) => {
    const file = join(await temporaryDirectory(t), 'file')
    for (const status of [400, 401] as const) {
      const { url, token } = await serviceBehindSidecar(t, fileService(Buffer.from('content')), status)
      const get = (text: string) =>
        run(t, 'wget2', ['--quiet', '--header', `Authorization: Bearer ${text}`, '-O', file, `${url}/a`])
      t.equal((await get(token)).code, 0)
      t.equal(readFileSync(file, 'utf8'), 'content')
      const refused = await get(BAD_TOKEN)
      t.equal(refused.code === 0, status === 400, `exit code ${refused.code} for ${status}`)
    }
  },
)

t.test(
  'ffmpeg reads with -headers, and does not notice a refused upload',
  { skip: without('ffmpeg') },
  async (t) => {
    const wav = Buffer.alloc(44 + 8000)
    wav.write('RIFF', 0)
    wav.writeUInt32LE(36 + 8000, 4)
    wav.write('WAVEfmt ', 8)
    wav.writeUInt32LE(16, 16)
    wav.writeUInt16LE(1, 20) // PCM
    wav.writeUInt16LE(1, 22) // one channel
    wav.writeUInt32LE(8000, 24)
    wav.writeUInt32LE(8000, 28)
    wav.writeUInt16LE(1, 32)
    wav.writeUInt16LE(8, 34)
    wav.write('data', 36)
    wav.writeUInt32LE(8000, 40)
    const { url, token } = await serviceBehindSidecar(t, fileService(wav))
    const ffmpeg = (...args: readonly string[]) => run(t, 'ffmpeg', ['-loglevel', 'error', ...args])
    const bearing = (text: string) => ['-headers', `Authorization: Bearer ${text}\r\n`]
    const read = (text: string) => ffmpeg(...bearing(text), '-i', `${url}/a.wav`, '-f', 'null', '-')
    t.match(await read(token), { code: 0 })
    t.match(await read(BAD_TOKEN), { code: 1, output: /400 Bad Request/ })
    const source = ['-f', 'lavfi', '-i', 'sine=d=1']
    const uploaded = await ffmpeg(
      ...source,
      '-method',
      'PUT',
      ...bearing(BAD_TOKEN),
      '-f',
      'wav',
      `${url}/b.wav`,
    )
    t.equal(uploaded.code, 0, 'it does not read the response to an upload')
  },
)

const PLUGIN = readFileSync('docs/known-clients.md', 'utf8').split('```python\n')[1]?.split('```')[0] ?? ''

t.test('aws-cli puts an object with a plugin', { skip: without('aws', '--version') }, async (t) => {
  const directory = await temporaryDirectory(t)
  const path = (name: string) => join(directory, name)
  writeFileSync(path('storage_token.py'), PLUGIN)
  const plugins = `[plugins]\nstorage = storage_token\ncli_legacy_plugin_path = ${directory}\n`
  const isFirst = (await run(t, 'aws', ['--version'])).output.startsWith('aws-cli/1.')
  writeFileSync(path('config'), isFirst ? plugins.replace(/cli_legacy.*\n/, '') : plugins)
  writeFileSync(path('a.txt'), 'content')
  const { objects, service } = objectService()
  const { url, token } = await serviceBehindSidecar(t, service)
  const put = (text: string) => {
    writeFileSync(path('token'), text)
    const env = {
      AWS_CONFIG_FILE: path('config'),
      AWS_EC2_METADATA_DISABLED: 'true',
      PYTHONPATH: directory,
      STORAGE_TOKEN_FILE: path('token'),
    }
    const flags = ['--endpoint-url', url, '--no-sign-request', '--region', 'us-east-1']
    return run(t, 'aws', ['s3', 'cp', path('a.txt'), 's3://bucket/a.txt', ...flags], { env })
  }
  t.match(await put(BAD_TOKEN), { code: 1, output: /\(400\) when calling the PutObject operation/ })
  const uploaded = await put(token)
  t.equal(uploaded.code, 0, uploaded.output)
  t.ok(objects.has('/bucket/a.txt'))
})

t.test('Prometheus scrapes with credentials_file', { skip: without('prometheus') }, async (t) => {
  const directory = await temporaryDirectory(t)
  const { port, token } = await serviceBehindSidecar(t, (_req, res) => {
    res.setHeader('Content-Type', 'text/plain; version=0.0.4')
    res.end('from_behind 7\n')
  })
  writeFileSync(join(directory, 'token'), token)
  const job = {
    job_name: 'storage',
    authorization: { credentials_file: join(directory, 'token') },
    static_configs: [{ targets: [`127.0.0.1:${port}`] }],
  }
  const settings = { global: { scrape_interval: '1s', scrape_timeout: '1s' }, scrape_configs: [job] }
  writeFileSync(join(directory, 'prometheus.yml'), JSON.stringify(settings))
  const listenPort = await freePort()
  const flags = ['--config.file=prometheus.yml', '--storage.tsdb.path=data']
  const listenFlag = `--web.listen-address=127.0.0.1:${listenPort}`
  const prometheus = spawn('prometheus', [...flags, listenFlag], { cwd: directory, stdio: 'ignore' })
  watchProcess(t, prometheus)
  const query = `http://127.0.0.1:${listenPort}/api/v1/query?query=from_behind`
  await eventually(async () => {
    const response = await fetch(query).catch(() => undefined)
    return (await response?.text())?.includes('"7"')
  }, 'a scraped sample')
  t.pass('a sample of the service behind the sidecar')
})
