/**
 * Peers that are Node programs: `bare.js`, `stock.js` and `fastify.js` beside this file.
 *
 * @module
 */
import { join } from 'node:path'
import type { Algorithm } from '../lab/trust.ts'
import type { Peer, Surroundings } from './peer.ts'

/** Node's HTTP server answering by itself: what no proxy on it can go below. */
export const bare: Peer = {
  name: 'bare-node',
  title: "Node's http server, no proxying",
  start: (surroundings) => run(surroundings, 'bare.js'),
}

/** http-proxy as its documentation shows it. */
export const stock: Peer = {
  name: 'http-proxy',
  title: 'stock http-proxy, keep-alive agent, cached token',
  start: (surroundings) => run(surroundings, 'stock.js', `http://127.0.0.1:${surroundings.upstreamPort}`),
}

/** Fastify with its proxy and JWT plugins, which must have been installed. */
export function fastify(checks: Algorithm = 'ES256'): Peer {
  return {
    name: 'fastify',
    title: 'Fastify, @fastify/http-proxy, @fastify/jwt with its cache',
    checks,
    start: (surroundings) =>
      run(
        surroundings,
        'fastify.js',
        `http://127.0.0.1:${surroundings.upstreamPort}`,
        checks,
        surroundings.trust.keyFile(checks),
      ),
  }
}

function run({ lab, port }: Surroundings, program: string, ...args: readonly string[]) {
  return lab.run(0, process.execPath, [join(import.meta.dirname, program), String(port), ...args])
}
