/**
 * The sidecar as it is shipped: every feature on, default settings.
 *
 * @module
 */
import type { Core } from '../lab/pin.ts'
import { type Algorithm, sidecarMain } from '../lab/trust.ts'
import type { Peer } from './peer.ts'

/** A sidecar with further settings, as environment variables; it verifies every algorithm. */
export function sidecar(
  checks: Algorithm = 'ES256',
  settings: Readonly<Record<string, string>> = {},
  core: Core = 0,
): Peer {
  return {
    name: 'sidecar',
    title: 'this sidecar, default settings',
    checks,
    start: ({ lab, trust, port, upstreamPort }) =>
      lab.run(core, process.execPath, [sidecarMain, 'serve', ...trust.flags], {
        SIDECAR_UPSTREAM_URL: `http://127.0.0.1:${upstreamPort}`,
        SIDECAR_LISTEN_HOST: '127.0.0.1',
        SIDECAR_LISTEN_PORT: String(port),
        SIDECAR_ADMIN_HOST: '127.0.0.1',
        SIDECAR_ADMIN_PORT: '0',
        ...settings,
      }),
  }
}
