/**
 * Logins with a generated secret, as fast as they are answered.
 *
 * @module
 */
import type { Scenario } from '../bench.ts'
import { compare } from '../compare.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import { load } from '../load/load.ts'
import { sidecar } from '../peers/sidecar.ts'
import { only } from '../report/figures.ts'

export const loginsPerSecond: Scenario = {
  name: 'login',
  async run(bench) {
    const { lab, trust } = bench
    const login = requestText({ method: 'POST', path: '/v2/auth/token', body: JSON.stringify(trust.login) })
    const requests = writeRequests(lab, 'login', [login])
    const rows = await compare(bench, [
      {
        peer: sidecar(),
        label: 'POST /v2/auth/token',
        load: (port, seconds) => load(lab, { port, requests, connections: 50, seconds }),
      },
    ])
    return {
      name: 'login',
      title: 'Logins',
      note: 'POST with a generated secret (SHA-256), answered with an ES256 token; 50 connections.',
      rows: only(rows, 'cpuMicros', 'perSecond', 'p50', 'p99'),
    }
  },
}
