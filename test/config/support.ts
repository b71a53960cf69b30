/**
 * Loads settings from texts, with one upstream unless a test says otherwise.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { type LoadOptions, loadConfig } from '../../src/config/load.ts'

/** What a test gives; `yaml` stands for the text of a file called `sidecar.yaml`. */
export interface Sources extends Partial<LoadOptions> {
  readonly yaml?: string
}

const directory = mkdtempSync(join(tmpdir(), 'config-'))
process.chdir(directory)
t.teardown(() => rmSync(directory, { recursive: true }))

const upstream = { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9000' }

/** Loads what the sources say. */
export function load({ yaml, env = upstream, flags = {}, ...rest }: Sources) {
  if (yaml === undefined) {
    return loadConfig({ env, flags, ...rest })
  }
  writeFileSync('sidecar.yaml', yaml)
  return loadConfig({ env, flags, file: 'sidecar.yaml', ...rest })
}

/** The configuration; throws when there are problems. */
export function accepted(sources: Sources) {
  const loaded = load(sources)
  if (!loaded.ok) {
    throw new Error(JSON.stringify(loaded.problems))
  }
  return loaded.value
}

/** The problems as `path: message (origin)`; empty when there are none. */
export function refused(sources: Sources): string[] {
  const loaded = load(sources)
  return loaded.ok
    ? []
    : loaded.problems.map(({ path, message, origin }) => `${path}: ${message} (${origin})`)
}
