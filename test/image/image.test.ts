import { type ChildProcess, spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { validate } from 'dockerfile-utils'
import t, { type Test } from 'tap'
import { settingsSchema } from '../../src/config/schema.ts'
import { nodeFloorWarnings } from '../../src/ops/node-floor.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { copyContext, isIgnored, parseDockerignore } from './build-context.ts'
import { type BuiltStage, buildImage, insideOf, NODE, StepFailed } from './build-image.ts'
import { readDockerfile, type Step } from './dockerfile.ts'

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url))
const DOCKERFILE = join(REPOSITORY, 'Dockerfile')
/** The user of the image, and of what is run here where that can be chosen. */
const USER = 65532
const CAN_CHOOSE_USER = process.getuid?.() === 0

const stages = readDockerfile(DOCKERFILE)
const image = stages.at(-1)
const steps = new Map(image?.steps.map((step) => [step.keyword, step]))

t.test('the Dockerfile has no mistake that a linter of the language sees', async (t) => {
  const problems = validate(readFileSync(DOCKERFILE, 'utf8'))
  t.strictSame(
    problems.map(({ message, range }) => `line ${range.start.line + 1}: ${message}`),
    [],
  )
})

t.test('the image runs unprivileged, gets its signals, and says what it is', async (t) => {
  t.equal(steps.get('USER')?.text, `${USER}:${USER}`, 'a number: Kubernetes cannot tell who a name is')
  t.strictSame(steps.get('ENTRYPOINT')?.exec?.[0], NODE, 'no shell between the signals and the program')
  t.strictSame(steps.get('CMD')?.exec, ['serve'])
  t.equal(steps.get('STOPSIGNAL')?.text, 'SIGTERM')
  const { listen, admin } = settingsSchema.parse({})
  t.equal(steps.get('EXPOSE')?.text, `${listen.port} ${admin.port}`)
  t.match(image?.image, /^gcr\.io\/distroless\/nodejs\d+-debian\d+:nonroot$/)
  const major = (name: string | undefined) => /node(?:js)?:?(\d+)/.exec(name ?? '')?.[1]
  t.equal(major(image?.image), major(stages[0]?.image), 'compiled and run by one Node')
  const labels = [...(steps.get('LABEL')?.properties.keys() ?? [])]
  for (const label of ['title', 'description', 'licenses', 'version', 'revision', 'created', 'source']) {
    t.ok(labels.includes(`org.opencontainers.image.${label}`), label)
  }
})

t.test('nothing that is secret, large or made here gets into the build context', async (t) => {
  const patterns = parseDockerignore(readFileSync(join(REPOSITORY, '.dockerignore'), 'utf8'))
  for (const path of [
    '.git/config',
    '.sidecar/keys/demo.jwk.json',
    'node_modules/pino/pino.js',
    'dist/main.js',
    'k8s/overlays/example/secrets/keys/active',
    '.env',
    'credentials.yaml',
    'test/image/image.test.ts',
    'source.pem',
  ]) {
    t.ok(isIgnored(path, patterns), path)
  }
  const builtFrom = [
    'package-lock.json',
    'src/main.ts',
    'scripts/prepare-checkout.mjs',
    'scripts/npm.mjs',
    'LICENSE',
  ]
  for (const path of builtFrom) {
    t.notOk(isIgnored(path, patterns), path)
  }
})

t.test('what the Dockerfile builds serves as an unprivileged user from a read-only tree', async (t) => {
  const home = mkdtempSync(join(tmpdir(), 'storage-auth-image-'))
  t.teardown(() => {
    makeTree(home, { directories: 0o755 })
    rmSync(home, { recursive: true, force: true })
  })
  chmodSync(home, 0o755)
  const context = join(home, 'context')
  copyContext(REPOSITORY, context)

  let built: BuiltStage
  const buildBegan = performance.now()
  try {
    built = await buildImage(stages, { context, into: home, env: buildEnvironment() })
  } catch (error) {
    if (error instanceof StepFailed && WITHOUT_NETWORK.test(error.message)) {
      t.comment(error.message)
      t.pass('skipped: the packages are in no cache, and the registry cannot be reached', { skip: true })
      return
    }
    throw error
  }
  t.comment(`image: built in ${Math.round(performance.now() - buildBegan)} ms`)
  const app = join(built.root, built.workdir)

  await t.test('it holds the program, its production packages and nothing else', async (t) => {
    t.strictSame(readdirSync(app).sort(), ['LICENSE', 'dist', 'node_modules', 'package.json'])
    const locked: { packages: Record<string, { dev?: boolean }> } = JSON.parse(
      readFileSync(join(REPOSITORY, 'package-lock.json'), 'utf8'),
    )
    const installed = packagesIn(app)
    t.ok(installed.length > 10)
    const unasked = installed.filter(
      (path) => locked.packages[path]?.dev !== undefined || !locked.packages[path],
    )
    t.strictSame(unasked, [], 'no development dependency')
    const files = filesIn(app)
    t.strictSame(
      files.filter((path) => /\.(?:node|so|ts|map)$/.test(path)),
      [],
      'no machine code, which would be of one platform only; no declarations and maps',
    )
    const bytes = (below: string) =>
      filesIn(below).reduce((sum, path) => sum + lstatSync(join(below, path)).size, 0)
    const mib = (below: string) => (bytes(below) / 1_048_576).toFixed(1)
    t.comment(
      `image: ${files.length} files, ${mib(app)} MiB without Node (${mib(join(app, 'dist'))} MiB of them ours)`,
    )
  })

  makeTree(built.root, { files: 0o444, directories: 0o555 })

  await t.test('it starts, serves, is healthy, drains on SIGTERM and exits with 0', async (t) => {
    const upstream = await recordingUpstream(t)
    const settings = await prepareSettings(t, home, built, upstream.url)
    const began = performance.now()
    const sidecar = runImage(t, built, ['--config', settings.file])
    const ports = await sidecar.listening()
    await sidecar.until(async () => (await fetchFrom(ports.admin, '/readyz')).status === 200)
    t.comment(`image: ready ${Math.round(performance.now() - began)} ms after its start`)

    t.equal(await checkHealth(built, ports.admin), 0, 'healthy')

    const login = await fetchFrom(ports.data, '/v2/auth/token', { body: settings.login })
    t.equal(login.status, 200)
    const { token }: { token: string } = JSON.parse(login.body)
    t.equal((await fetchFrom(ports.data, '/bucket/object')).status, 400, 'refused without a token')
    upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobject')
    const object = await fetchFrom(ports.data, '/bucket/object', { token })
    t.strictSame(object, { status: 200, body: 'object' })

    let finish = () => {}
    upstream.reply((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobj')
      finish = () => socket.write('ect')
    })
    const slow = fetchFrom(ports.data, '/bucket/slow', { token })
    await upstream.received(2)
    sidecar.child.kill('SIGTERM')
    await sidecar.until(async () => (await fetchFrom(ports.admin, '/readyz')).status === 503)
    const closed = () =>
      fetchFrom(ports.data, '/').then(
        () => false,
        () => true,
      )
    await sidecar.until(closed)
    finish()
    t.strictSame(await slow, { status: 200, body: 'object' }, 'a transfer under way is let finish')
    t.strictSame(await sidecar.ended, { code: 0, signal: null })
    const log = sidecar.log()
    t.match(log.at(-1), { msg: 'stopped', drained: 1, cut: 0 })
    t.strictSame(
      log.filter(({ level }) => Number(level) >= 40).map(({ msg }) => msg),
      nodeFloorWarnings(process.versions.node),
      'nothing to warn of but the Node that runs this',
    )
    t.equal(sidecar.stderr(), '')
    t.not(await checkHealth(built, ports.admin), 0, 'not healthy when it is gone')
  })

  await t.test('it refuses wrong settings with exit code 2', async (t) => {
    const sidecar = runImage(t, built, ['--config', '/nowhere/sidecar.yaml'])
    t.strictSame(await sidecar.ended, { code: 2, signal: null })
    t.match(sidecar.stderr(), /\/nowhere\/sidecar\.yaml/)
  })
})

/** What npm says when it is the network that it lacks, and not something that is wrong with us. */
const WITHOUT_NETWORK =
  /\b(?:ENOTCACHED|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|E50[234]|EIDLETIMEOUT|ERR_SOCKET_TIMEOUT)\b/

/** As in a container that is built: nothing of the npm script and the coverage that run this. */
function buildEnvironment(): Record<string, string> {
  const kept = ['PATH', 'HOME', 'npm_config_cache', 'npm_config_registry', 'npm_config_userconfig']
  return {
    ...Object.fromEntries(
      kept.flatMap((name) => (process.env[name] ? [[name, process.env[name] ?? '']] : [])),
    ),
    npm_config_fetch_retries: '1',
    npm_config_fetch_retry_mintimeout: '500',
    npm_config_fetch_timeout: '20000',
  }
}

/** Sets the modes of all files and directories below one, and of itself. */
function makeTree(root: string, { files, directories }: { files?: number; directories: number }): void {
  const found = lstatSync(root)
  if (found.isFile() && files !== undefined) chmodSync(root, files)
  if (!found.isDirectory()) return
  chmodSync(root, 0o755)
  for (const name of readdirSync(root)) {
    makeTree(join(root, name), { directories, ...(files !== undefined && { files }) })
  }
  chmodSync(root, directories)
}

function filesIn(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter(
    (path) => !lstatSync(join(directory, path)).isDirectory(),
  )
}

/** The directories of installed packages, as a lock file names them. */
function packagesIn(app: string): string[] {
  return filesIn(app)
    .filter((path) => /(?:^|\/)node_modules\/(?:@[^/]+\/)?[^/@]+\/package\.json$/.test(path))
    .map((path) => path.replace(/\/package\.json$/, ''))
}

/** A settings file, and the key and credential that it names, made by the program of the image. */
async function prepareSettings(t: Test, home: string, built: BuiltStage, upstreamUrl: string) {
  const directory = join(home, 'etc')
  const keys = join(directory, 'keys')
  const credentials = join(directory, 'credentials.yaml')
  mkdirSync(keys, { recursive: true })
  const run = async (args: readonly string[]) => {
    const command = start(t, [...insideOf(built.root, steps.get('ENTRYPOINT')?.exec ?? []), ...args], {})
    t.equal((await command.ended).code, 0, args.join(' '))
    return command.stdout()
  }
  await run(['keys', 'add', '--directory', keys])
  const login = await run(['credentials', 'add', '--file', credentials, '--account', 'acme'])
  const file = join(directory, 'sidecar.yaml')
  writeFileSync(
    file,
    JSON.stringify({
      listen: { host: '127.0.0.1', port: 0 },
      admin: { host: '127.0.0.1', port: 0 },
      upstreams: [{ prefix: '/', url: upstreamUrl }],
      keys: { directory: keys },
      credentials: { file: credentials },
      shutdown: { lameDuckSeconds: 0.2, deadlineSeconds: 20 },
    }),
  )
  makeTree(directory, { files: 0o440, directories: 0o555 })
  if (CAN_CHOOSE_USER) for (const path of filesIn(directory)) chownSync(join(directory, path), 0, USER)
  return { file, login }
}

/** Starts what ENTRYPOINT and CMD say, as the user that USER says where we can, with the image's environment only. */
function runImage(t: Test, built: BuiltStage, args: readonly string[]) {
  const command = [...(built.last.get('ENTRYPOINT')?.exec ?? []), ...(built.last.get('CMD')?.exec ?? [])]
  return start(t, [...insideOf(built.root, command), ...args], {
    env: built.env,
    cwd: join(built.root, built.workdir),
    ...(CAN_CHOOSE_USER && { user: USER }),
  })
}

/** Runs a process with an empty environment; tap would put its own into any other. */
function start(
  t: Test,
  command: readonly string[],
  { env = {}, cwd = '/', user }: { env?: Readonly<Record<string, string>>; cwd?: string; user?: number },
) {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const child: ChildProcess = spawn('/usr/bin/env', ['-i', ...variables, ...command], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(user !== undefined && { uid: user, gid: user }),
  })
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (more: string) => {
    stdout += more
  })
  child.stderr?.setEncoding('utf8').on('data', (more: string) => {
    stderr += more
  })
  const ended = new Promise<{ code: number | null; signal: string | null }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const log = (): Record<string, unknown>[] =>
    stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line))
  const until = async (holds: () => boolean | Promise<boolean>) => {
    const began = performance.now()
    while (!(await holds())) {
      if (performance.now() - began > 30_000 || child.exitCode !== null) {
        throw new Error(`waited in vain: ${stdout.slice(-2000)}${stderr.slice(-2000)}`)
      }
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }
  return {
    child,
    ended,
    log,
    until,
    stdout: () => stdout,
    stderr: () => stderr,
    async listening() {
      const lines = () => log().filter(({ msg }) => msg === 'listening')
      await until(() => lines().length === 2)
      const portOf = (listener: string) =>
        Number(lines().find((line) => line['listener'] === listener)?.['port'])
      return { data: portOf('data'), admin: portOf('admin') }
    },
  }
}

/** Runs the image's health check; resolves with its exit code. */
async function checkHealth(built: BuiltStage, port: number): Promise<number | null> {
  const command = healthCommand(built.last.get('HEALTHCHECK'))
  const child = spawn('/usr/bin/env', [
    '-i',
    `SIDECAR_ADMIN_PORT=${port}`,
    ...insideOf(built.root, command.slice(0, 1)),
    ...command.slice(1),
  ])
  return new Promise((resolve) => child.once('close', resolve))
}

function healthCommand(step: Step | undefined): string[] {
  return JSON.parse(step?.text.replace(/^CMD\s+/, '') ?? '[]')
}

interface Asked {
  readonly token?: string
  readonly body?: string
}

/** One request on a connection of its own. */
async function fetchFrom(port: number, path: string, { token, body }: Asked = {}) {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request({
      host: '127.0.0.1',
      port,
      path,
      method: body === undefined ? 'GET' : 'POST',
      agent: new Agent({ keepAlive: false }),
      headers: {
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
      },
    })
      .once('response', resolve)
      .once('error', reject)
      .end(body)
  })
  return { status: response.statusCode, body: await text(response) }
}
