/**
 * Reads the settings: defaults, then the file, then the environment, then flags; the later wins.
 *
 * Out: a complete, consistent, frozen configuration with the origin of every value, or every mistake at once.
 * This is done once, before anything is started.
 *
 * @module
 */
import { readRegularFileSync } from '../reload/files.ts'
import { checkEach } from './check-each.ts'
import { type ReadFile, readConfigFile } from './config-file.ts'
import { type NamedFiles, namedFiles } from './named-files.ts'
import { FILE_VARIABLE, type Named, readEnvironment, readFlags } from './named-settings.ts'
import type { Problem } from './problem.ts'
import type { Given, Reading } from './reading.ts'
import { NEEDS_UPSTREAM, RULES } from './rules.ts'
import type { Config } from './schema.ts'
import { SETTINGS, valueAt } from './settings.ts'
import { settle } from './settle.ts'

export { formatProblems, type Problem } from './problem.ts'

/** Where each setting's value came from: `default`, `file:line:column`, `env NAME` or `flag --name`. */
export type Origins = ReadonlyMap<string, string>

/** Settings that can be used. */
export interface LoadedConfig {
  readonly ok: true
  readonly config: Config
  /** By setting path; settings without a value (`listen.tls.certFile`) are left out. */
  readonly origins: Origins
}

/** Settings that cannot be used, and every reason. */
export interface NotLoaded {
  readonly ok: false
  readonly problems: readonly Problem[]
  /** The files that can be looked into all the same. */
  readonly files: NamedFiles
}

/** What {@link loadConfig} works on. */
export interface LoadOptions {
  /** The settings file; without it the one that `SIDECAR_CONFIG` names; without either, none. */
  readonly file?: string | undefined
  readonly env: Named
  /** By full name: `{ '--listen-port': '8080' }`. */
  readonly flags: Named
  /** Whether a configuration without an upstream is a mistake; default true. */
  readonly needsUpstream?: boolean
  /** Default: from the disk. */
  readonly readFile?: ReadFile
}

/** No settings file comes near this. */
const MOST_BYTES = 1_048_576

const readSmallFile: ReadFile = (path) => readRegularFileSync(path, MOST_BYTES)

/** Reads, checks and settles the configuration. Mistakes are values; nothing is thrown. */
export function loadConfig(options: LoadOptions): LoadedConfig | NotLoaded {
  const { file = options.env[FILE_VARIABLE], env, flags, readFile = readSmallFile } = options
  const sources: Reading[] = [readEnvironment(env), readFlags(flags)]
  if (file !== undefined) sources.unshift(readConfigFile(file, readFile))
  const given = new Map<string, Given>()
  for (const one of sources.flatMap((source) => source.given)) given.set(one.setting.path, one)
  const problems = sources.flatMap((source) => source.problems)

  const { settings, broken, issues } = checkEach(given)
  problems.push(...issues)
  const isSet = (path: string) => given.has(path)
  const rules = options.needsUpstream === false ? RULES : [NEEDS_UPSTREAM, ...RULES]
  // Of a file that could not be read, nothing can be said to be missing or in conflict.
  const readable = sources.every((source) => source.readable)
  for (const { reads, check } of readable ? rules : []) {
    if (reads.some((path) => broken.has(path))) continue
    for (const { path, message, at, below = [] } of check(settings, isSet)) {
      problems.push({ path, message, origin: given.get(at)?.place(below) ?? 'default' })
    }
  }
  const config = settle(settings)
  if (problems.length > 0) {
    return { ok: false, problems, files: readable ? namedFiles(config, broken) : { upstreams: [] } }
  }
  const origins = SETTINGS.filter(({ steps }) => valueAt(config, steps) !== undefined).map(
    ({ path }) => [path, given.get(path)?.origin ?? 'default'] as const,
  )
  return { ok: true, config, origins: new Map(origins) }
}
