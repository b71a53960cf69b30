/**
 * nginx: the yardstick, forwarding with kept-alive upstream connections and no authentication at all; and the upstream.
 *
 * One process without a master, no access log. Uploads are streamed, as the others do it, and downloads never go to a
 * temporary file; the rest are its defaults.
 *
 * @module
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Lab, Running } from '../lab/lab.ts'
import { hasProgram } from '../lab/machine.ts'
import type { Core } from '../lab/pin.ts'
import type { Peer } from './peer.ts'

/** Whether nginx is installed. */
export const hasNginx = hasProgram('nginx')

/** `proxy_pass` without authentication. */
export const nginx: Peer = {
  name: 'nginx',
  title: 'nginx proxy_pass, no auth',
  ...(!hasNginx && { missing: 'nginx is not installed (Debian: nginx-light)' }),
  start: ({ lab, port, upstreamPort }) =>
    runNginx(
      lab,
      0,
      port,
      `upstream u { server 127.0.0.1:${upstreamPort}; keepalive 256; keepalive_requests 100000000; }`,
      `proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection "";
       proxy_request_buffering off; proxy_max_temp_file_size 0; client_max_body_size 0;`,
    ),
}

/** Runs nginx with one server and one location. */
export function runNginx(lab: Lab, core: Core, port: number, outside: string, location: string): Running {
  const prefix = join(lab.directory, `nginx-${port}`)
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${prefix}-${name};`)
    .join('\n')
  writeFileSync(
    `${prefix}.conf`,
    `worker_processes 1; daemon off; master_process off; pid ${prefix}.pid; worker_rlimit_nofile 16384;
    events { worker_connections 16000; }
    http { access_log off; keepalive_requests 100000000; ${paths}
      ${outside}
      server { listen 127.0.0.1:${port} backlog=4096; location / { ${location} } } }`,
  )
  return lab.run(core, 'nginx', ['-c', `${prefix}.conf`, '-e', `${prefix}.err`])
}
