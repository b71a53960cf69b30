/**
 * The peers: the sidecar and what it is compared with, each a process of its own in front of one upstream.
 *
 * @module
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isInstalled, onCore } from './pin.ts'

/** A process under test. */
export interface Peer {
  readonly name: string
  readonly pid: number
  readonly url: string
  readonly token: string
}

/** Everything that was started. */
export interface Peers {
  readonly peers: readonly Peer[]
  /** What the upstream is. */
  readonly upstream: string
  /** Programs that would have been peers. */
  readonly missing: readonly string[]
  stop(): void
}

const root = join(import.meta.dirname, '..')
export const sidecar = join(root, 'dist/main.js')

/** Starts the upstream and every peer that can be had, or those that are wanted. Needs `wrk` and `nginx`. */
export async function startPeers(wanted?: readonly string[]): Promise<Peers> {
  for (const program of ['wrk', 'nginx']) {
    if (!isInstalled(program)) throw new Error(`${program} is needed: apt-get install wrk nginx-light`)
  }
  const directory = mkdtempSync(join(tmpdir(), 'bench-'))
  const children: ChildProcess[] = []
  const run = (core: 0 | 1, command: string, args: readonly string[], env: Record<string, string> = {}) => {
    const child = spawn(...onCore(core, command, args), {
      stdio: ['ignore', 'ignore', 'inherit'],
      cwd: directory,
      env: { ...process.env, ...env },
    })
    children.push(child)
    return child.pid ?? 0
  }
  const stop = () => {
    for (const child of children) child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    const upstreamPort = await freePort()
    const upstreamUrl = `http://127.0.0.1:${upstreamPort}`
    const nginx = (name: string, core: 0 | 1, server: string) => {
      const file = join(directory, `${name}.conf`)
      writeFileSync(file, nginxConfig(join(directory, name), server))
      return run(core, 'nginx', ['-c', file, '-e', join(directory, `${name}.err`)])
    }
    nginx(
      'upstream',
      1,
      `server { listen 127.0.0.1:${upstreamPort}; location / { return 200 "${'x'.repeat(1024)}"; } }`,
    )

    const token = makeTrust(directory)
    const starters: Record<string, (port: number) => Promise<number> | number> = {
      sidecar: async (port) =>
        run(
          0,
          process.execPath,
          [sidecar, 'serve', '--keys-directory', 'keys', '--credentials-file', 'credentials.yaml'],
          {
            SIDECAR_UPSTREAM_URL: upstreamUrl,
            SIDECAR_LISTEN_PORT: String(port),
            SIDECAR_ADMIN_PORT: String(await freePort()),
          },
        ),
      nginx: (port) =>
        nginx(
          'nginx',
          0,
          `upstream u { server 127.0.0.1:${upstreamPort}; keepalive 256; keepalive_requests 100000000; }
           server { listen 127.0.0.1:${port}; location / {
             proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; } }`,
        ),
      stock: (port) =>
        run(0, process.execPath, [join(import.meta.dirname, 'peers/stock.js'), String(port), upstreamUrl]),
      bare: (port) => run(0, process.execPath, [join(import.meta.dirname, 'peers/bare.js'), String(port)]),
    }
    const peers: Peer[] = []
    for (const [name, start] of Object.entries(starters)) {
      if (wanted !== undefined && !wanted.includes(name)) continue
      const port = await freePort()
      const pid = await start(port)
      await listening(port)
      peers.push({ name, pid, url: `http://127.0.0.1:${port}/bucket/object`, token })
    }
    return { peers, upstream: `nginx, 1 KiB from memory`, missing: [], stop }
  } catch (error) {
    stop()
    throw error
  }
}

/** Makes a key and a credential with the program's own commands; returns a token of it. */
export function makeTrust(directory: string): string {
  const run = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [sidecar, ...args], {
      cwd: directory,
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(`${args[0]} ${args[1]}: ${stderr}`)
    return stdout
  }
  run('keys', 'add', '--directory', 'keys')
  const added: unknown = JSON.parse(
    run('credentials', 'add', '--file', 'credentials.yaml', '--account', 'bench'),
  )
  const { accessKey } = added as { accessKey: string }
  const trust = ['--keys-directory', 'keys', '--credentials-file', 'credentials.yaml']
  return run('token', 'issue', ...trust, '--account', 'bench', '--access-key', accessKey).trim()
}

function nginxConfig(prefix: string, server: string): string {
  return `worker_processes 1; daemon off; master_process off; pid ${prefix}.pid;
    events { worker_connections 8192; }
    http { access_log off; keepalive_requests 100000000; client_body_temp_path ${prefix}-body;
      proxy_temp_path ${prefix}-proxy; fastcgi_temp_path ${prefix}-f; uwsgi_temp_path ${prefix}-u; scgi_temp_path ${prefix}-s;
      ${server} }`
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0))
    })
  })
}

/** Resolves once somebody accepts connections on a port. */
export async function listening(port: number): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const open = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1')
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
      socket.once('connect', () => socket.destroy())
    })
    if (open) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`nobody listens on port ${port}`)
}
