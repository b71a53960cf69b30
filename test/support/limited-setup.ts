/** A sidecar with limits for accounts (`fairUse.file`), in front of a recording upstream. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type SetupOptions, startSetup } from './setup.ts'
import { temporaryDirectory } from './temporary-directory.ts'

const LIMITED = 'auth_sidecar_fair_use_limited_total'
const PACED = 'auth_sidecar_fair_use_paced_seconds_total'

/** Writes limits to a file. */
export async function limitsFile(t: Test, limits: string): Promise<string> {
  const file = join(await temporaryDirectory(t), 'fair-use.yaml')
  writeFileSync(file, limits)
  return file
}

/** `limits`: the text of the file. */
export async function limitedSetup(t: Test, limits: string, options: SetupOptions = {}) {
  const file = await limitsFile(t, limits)
  const setup = await startSetup(t, { ...options, settings: { 'fair-use-file': file, ...options.settings } })
  const { sidecar } = setup
  return {
    ...setup,
    /** Replaces the limits. */
    write: (text: string) => writeFileSync(file, text),
    /** The status of a request of the first account. */
    get: async (path = '/a') => (await setup.ask(setup.head(`GET ${path}`))).status,
    /** How many requests were limited. */
    limited: (limit: string) => sidecar.metric(`${LIMITED}{limit="${limit}"}`),
    /** How many seconds transfers have waited. */
    pacedSeconds: (direction: 'in' | 'out') => sidecar.metric(`${PACED}{direction="${direction}"}`),
    accessLines: () => sidecar.log.filter(({ msg }) => msg === 'request'),
    reloads: (result: string) =>
      sidecar.metric(`auth_sidecar_reloads_total{subject="fair_use",result="${result}"}`),
  }
}
