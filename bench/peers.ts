/**
 * The sidecar and the proxies that it is compared with, each with one worker thread in front
 * of the same upstream. A peer that is not installed says what is missing.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePort } from '../test/support/free-port.ts'
import { ask, type Core, type Lab, listening, type Running } from './lab.ts'
import { AUDIENCE, expiredToken, forgedToken, ISSUER, MAIN, type Trust } from './trust.ts'

/** What a peer works with; `node` is the binary that runs the sidecar and http-proxy. */
export interface Setup {
  readonly lab: Lab
  readonly trust: Trust
  readonly node: string
  readonly port: number
  readonly upstreamPort: number
}

export interface Peer {
  readonly name: string
  readonly checksTokens: boolean
  /** Why it cannot run here. */
  readonly missing?: string
  start(setup: Setup): Running | Promise<Running>
}

const ENVOY = join(import.meta.dirname, '.peers/envoy/envoy/_bin/envoy')
const OBJECT = 'x'.repeat(1024)

export function hasProgram(name: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${name}`], { stdio: 'ignore' }).status === 0
}

const hasNginx = hasProgram('nginx')
const unlessNginx = hasNginx ? {} : { missing: 'nginx is not installed (Debian: nginx-light)' }

/** The sidecar with default settings, or with further ones as environment variables. */
export function sidecarWith(settings: Readonly<Record<string, string>> = {}): Peer {
  return {
    name: 'sidecar',
    checksTokens: true,
    start: ({ lab, trust, node, port, upstreamPort }) =>
      lab.run(0, node, [MAIN, 'serve', ...trust.flags], {
        SIDECAR_UPSTREAM_URL: `http://127.0.0.1:${upstreamPort}`,
        SIDECAR_LISTEN_HOST: '127.0.0.1',
        SIDECAR_LISTEN_PORT: String(port),
        SIDECAR_ADMIN_HOST: '127.0.0.1',
        SIDECAR_ADMIN_PORT: '0',
        ...settings,
      }),
  }
}

export const sidecar = sidecarWith()

/** The sidecar with signed identity. */
export const assertion: Peer = {
  ...sidecarWith({ SIDECAR_IDENTITY_ASSERTION_ENABLED: 'true' }),
  name: 'assertion',
}

/** A plain proxy without authentication: the least that forwarding costs. */
export const nginx: Peer = {
  name: 'nginx',
  checksTokens: false,
  ...unlessNginx,
  start: ({ lab, port, upstreamPort }) => runNginx(lab, 0, port, ...forwardTo(upstreamPort)),
}

/**
 * nginx asks the sidecar's token check and caches the answer for ten seconds. Both processes are measured.
 */
const nginxAuth: Peer = {
  name: 'nginx-auth',
  checksTokens: true,
  ...unlessNginx,
  async start(setup) {
    const { lab, port, upstreamPort } = setup
    const sidecarPort = await freePort()
    const checker = await sidecar.start({ ...setup, port: sidecarPort })
    await listening(sidecarPort)
    const [outside, location] = forwardTo(upstreamPort)
    const check = `location = /_check { internal; proxy_pass http://127.0.0.1:${sidecarPort}/v2/auth/token;
      proxy_pass_request_body off; proxy_set_header Content-Length "";
      proxy_cache checks; proxy_cache_key $http_authorization; proxy_cache_valid 200 10s;
      proxy_ignore_headers Cache-Control; proxy_intercept_errors on; error_page 400 = @refused; }
      location @refused { return 401; }`
    const proxy = runNginx(
      lab,
      0,
      port,
      `${outside} proxy_cache_path ${join(lab.directory, `cache-${port}`)} keys_zone=checks:16m;`,
      `auth_request /_check; proxy_set_header Authorization ""; ${location}`,
      check,
    )
    return {
      pids: [...proxy.pids, ...checker.pids],
      stop: async () => {
        await Promise.all([proxy.stop(), checker.stop()])
      },
    }
  },
}

function forwardTo(upstreamPort: number): [string, string] {
  return [
    `upstream u { server 127.0.0.1:${upstreamPort}; keepalive 256; keepalive_requests 100000000; }`,
    `proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection "";
     proxy_request_buffering off; proxy_max_temp_file_size 0; client_max_body_size 0;`,
  ]
}

/** One process without a master and without an access log; uploads are streamed as by the other peers. */
function runNginx(lab: Lab, core: Core, port: number, outside: string, location: string, more = ''): Running {
  const prefix = join(lab.directory, `nginx-${port}`)
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${prefix}-${name};`)
    .join(' ')
  writeFileSync(
    `${prefix}.conf`,
    `worker_processes 1; daemon off; master_process off; pid ${prefix}.pid; worker_rlimit_nofile 16384;
    events { worker_connections 16000; }
    http { access_log off; keepalive_requests 100000000; ${paths} ${outside}
      server { listen 127.0.0.1:${port} backlog=4096; location / { ${location} } ${more} } }`,
  )
  return lab.run(core, 'nginx', ['-c', `${prefix}.conf`, '-e', `${prefix}.err`])
}

/** Verifies each token; it has no cache. The rules are those of HAProxy's own guide. */
export const haproxy: Peer = {
  name: 'haproxy',
  checksTokens: true,
  ...(!hasProgram('haproxy') && { missing: 'haproxy is not installed' }),
  start({ lab, trust, port, upstreamPort }) {
    const file = join(lab.directory, `haproxy-${port}.cfg`)
    writeFileSync(
      file,
      `global
  nbthread 1
defaults
  mode http
  timeout connect 3s
  timeout client 75s
  timeout server 60s
  http-reuse always
frontend f
  bind 127.0.0.1:${port} backlog 4096
  http-request set-var(txn.bearer) http_auth_bearer
  http-request deny unless { var(txn.bearer),jwt_header_query('$.alg') -m str ES256 }
  http-request deny unless { var(txn.bearer),jwt_payload_query('$.iss') -m str ${ISSUER} }
  http-request deny unless { var(txn.bearer),jwt_payload_query('$.aud') -m str ${AUDIENCE} }
  http-request set-var(txn.exp) var(txn.bearer),jwt_payload_query('$.exp','int')
  http-request set-var(txn.now) date()
  http-request deny if { var(txn.exp),sub(txn.now) -m int lt 0 }
  http-request deny unless { var(txn.bearer),jwt_verify('ES256','${trust.pemFile}') -m int 1 }
  http-request del-header Authorization
  default_backend b
backend b
  server s 127.0.0.1:${upstreamPort}
`,
    )
    return lab.run(0, 'haproxy', ['-db', '-q', '-f', file])
  },
}

/** `jwt_authn` with its cache of verified tokens; two claims become identity headers, as the sidecar's do. */
export const envoy: Peer = {
  name: 'envoy',
  checksTokens: true,
  ...(!existsSync(ENVOY) && { missing: 'envoy is not installed: see bench/README.md' }),
  start({ lab, trust, port, upstreamPort }) {
    const at = (port: number) => `{ socket_address: { address: 127.0.0.1, port_value: ${port} } }`
    const type = (name: string) => `"@type": type.googleapis.com/envoy.extensions.filters.${name}`
    const file = join(lab.directory, `envoy-${port}.yaml`)
    writeFileSync(
      file,
      `static_resources:
  clusters:
  - name: u
    type: STATIC
    load_assignment: { cluster_name: u, endpoints: [{ lb_endpoints: [{ endpoint: { address: ${at(upstreamPort)} } }] }] }
  listeners:
  - address: ${at(port)}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          ${type('network.http_connection_manager.v3.HttpConnectionManager')}
          stat_prefix: f
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: u, timeout: 0s } }] }
          http_filters:
          - name: jwt
            typed_config:
              ${type('http.jwt_authn.v3.JwtAuthentication')}
              providers:
                sidecar:
                  issuer: ${ISSUER}
                  audiences: [${AUDIENCE}]
                  local_jwks: { inline_string: '${trust.jwks}' }
                  claim_to_headers:
                  - { header_name: x-authenticated-account-id, claim_name: sub }
                  - { header_name: x-authenticated-access-key, claim_name: client_id }
                  jwt_cache_config: { jwt_cache_size: 10000 }
              rules: [{ match: { prefix: / }, requires: { provider_name: sidecar } }]
          - { name: router, typed_config: { ${type('http.router.v3.Router')} } }
`,
    )
    return lab.run(0, ENVOY, ['-c', file, '--concurrency', '1', '--disable-hot-restart', '-l', 'off'])
  },
}

/** A Node program without authentication. */
const withoutChecks = (name: string, script: string): Peer => ({
  name,
  checksTokens: false,
  start: ({ lab, node, port, upstreamPort }) =>
    lab.run(0, node, [join(import.meta.dirname, script), String(port), String(upstreamPort)]),
})

export const stock = withoutChecks('http-proxy', 'stock.js')

/** Node's server with the smallest upstream client: the limit of the sidecar's design. */
export const limit = withoutChecks('limit', 'limit.js')

export const PEERS: readonly Peer[] = [sidecar, assertion, limit, nginx, nginxAuth, haproxy, envoy, stock]

/** Starts what answers everything with 1 KiB; resolves with its port. */
export async function startSmallUpstream(lab: Lab): Promise<number> {
  if (!hasNginx) {
    return startObjectUpstream(lab)
  }
  const port = await freePort()
  runNginx(lab, 1, port, '', `return 200 "${OBJECT}";`)
  await listening(port)
  return port
}

/**
 * Starts the storage service of large objects; resolves with its port.
 * `prefix`: words before its command.
 */
export async function startObjectUpstream(lab: Lab, prefix: readonly string[] = []): Promise<number> {
  const port = await freePort()
  const program = [process.execPath, join(import.meta.dirname, 'upstream.js'), String(port)]
  const [command = '', ...args] = [...prefix, ...program]
  lab.run(1, command, args)
  await listening(port)
  return port
}

/** Throws unless the peer forwards a good request and, if it checks tokens, refuses bad ones. */
export async function checkPeer({ name, checksTokens }: Peer, trust: Trust, port: number): Promise<void> {
  const good = await ask(port, '/bucket/object', trust.mint())
  if (good.status !== 200 || good.body !== OBJECT) {
    throw new Error(`does not forward: ${good.status}`)
  }
  if (!checksTokens) {
    return
  }
  const bad = { forged: forgedToken(trust), expired: expiredToken(trust), missing: undefined }
  for (const [kind, token] of Object.entries(bad)) {
    const { status } = await ask(port, '/bucket/object', token)
    if (status < 400 || status > 403) {
      throw new Error(`${name} answers ${status} to a ${kind} token`)
    }
  }
}
