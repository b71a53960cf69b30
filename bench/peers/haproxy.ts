/**
 * HAProxy: forwarding without authentication, and checking a token for every request with `jwt_verify`, which
 * remembers nothing. The rules are those of HAProxy's own guide: algorithm, issuer, audience, expiry, signature.
 *
 * @module
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { hasProgram } from '../lab/machine.ts'
import type { Algorithm } from '../lab/trust.ts'
import type { Peer, Surroundings } from './peer.ts'

const missing = hasProgram('haproxy') ? {} : { missing: 'haproxy is not installed' }

/** HAProxy without authentication. */
export const haproxy: Peer = {
  name: 'haproxy',
  title: 'HAProxy, no auth',
  ...missing,
  start: (surroundings) => run(surroundings, []),
}

/** HAProxy that verifies each token. */
export function haproxyJwt(checks: Extract<Algorithm, 'ES256' | 'RS256' | 'HS256'>): Peer {
  return {
    name: `haproxy-${checks.toLowerCase()}`,
    title: `HAProxy with jwt_verify ${checks}`,
    checks,
    ...missing,
    start(surroundings) {
      const file = surroundings.trust.keyFile(checks)
      const key = checks === 'HS256' ? readFileSync(file, 'utf8') : file
      return run(surroundings, [
        'http-request set-var(txn.bearer) http_auth_bearer',
        `http-request deny unless { var(txn.bearer),jwt_header_query('$.alg') -m str ${checks} }`,
        `http-request deny unless { var(txn.bearer),jwt_payload_query('$.iss') -m str storage-account-api }`,
        `http-request deny unless { var(txn.bearer),jwt_payload_query('$.aud') -m str storage-api }`,
        `http-request set-var(txn.exp) var(txn.bearer),jwt_payload_query('$.exp','int')`,
        'http-request set-var(txn.now) date()',
        'http-request deny if { var(txn.exp),sub(txn.now) -m int lt 0 }',
        `http-request deny unless { var(txn.bearer),jwt_verify('${checks}','${key}') -m int 1 }`,
        'http-request del-header Authorization',
      ])
    },
  }
}

function run({ lab, port, upstreamPort }: Surroundings, rules: readonly string[]) {
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
${rules.map((rule) => `  ${rule}\n`).join('')}  default_backend b
backend b
  server s 127.0.0.1:${upstreamPort}
`,
    { mode: 0o600 },
  )
  return lab.run(0, 'haproxy', ['-db', '-q', '-f', file])
}
