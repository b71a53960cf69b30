/**
 * What stands behind every peer, on the load's core.
 *
 * @module
 */
import { join } from 'node:path'
import type { Lab } from '../lab/lab.ts'
import { freePort, listening } from '../lab/ports.ts'
import { hasNginx, runNginx } from './nginx.ts'

/** The bytes of the small object. */
export const SMALL_OBJECT = 'x'.repeat(1024)

/** What answers with the small object, for the report. */
export const smallUpstream = hasNginx ? 'nginx, 1 KiB from memory' : "Node's http server, 1 KiB from memory"

/** Starts what answers everything with 1 KiB from memory; resolves with its port. */
export async function startSmallUpstream(lab: Lab): Promise<number> {
  const port = await freePort()
  if (hasNginx) runNginx(lab, 1, port, '', `return 200 "${SMALL_OBJECT}";`)
  else lab.run(1, process.execPath, [join(import.meta.dirname, 'bare.js'), String(port)])
  await listening(port)
  return port
}

/** Starts what gives objects of any size and takes them; resolves with its port. */
export async function startObjectUpstream(lab: Lab): Promise<number> {
  const port = await freePort()
  lab.run(1, process.execPath, [join(import.meta.dirname, 'object-upstream.js'), String(port)])
  await listening(port)
  return port
}
