/**
 * Reads settings given by name: environment variables and flags.
 *
 * Their values are text. Numbers are plain decimals, booleans `true` or `false`, lists YAML or JSON. Text that
 * is none of that is handed on as text, and the setting then says what it wants.
 *
 * @module
 */

import { parseYaml } from '../yaml/yaml-text.ts'
import { nearest } from './nearest.ts'
import type { Problem } from './problem.ts'
import type { Given, Reading } from './reading.ts'
import { isServiceLink } from './service-links.ts'
import { SETTINGS, type Setting } from './settings.ts'

/** Names and their values; undefined is as good as absent. */
export type Named = Readonly<Record<string, string | undefined>>

/** The variable that names the settings file; the only one that is no setting. */
export const FILE_VARIABLE = 'SIDECAR_CONFIG'

/** Short for one upstream at prefix `/`. */
export const UPSTREAM_URL = { variable: 'SIDECAR_UPSTREAM_URL', flag: '--upstream-url' } as const

/** Reads `SIDECAR_*` variables; one that is no setting is a problem, as a typing mistake must not be ignored. */
export function readEnvironment(environment: Named): Reading {
  const own = Object.entries(environment).filter(
    ([name, value]) =>
      name.startsWith('SIDECAR_') && name !== FILE_VARIABLE && !isServiceLink(name, value ?? ''),
  )
  return readNamed(Object.fromEntries(own), VARIABLES)
}

/** Reads flags, by their full name (`--listen-port`). */
export function readFlags(flags: Named): Reading {
  return readNamed(flags, FLAGS)
}

/** One way of naming settings. */
interface Naming {
  readonly named: ReadonlyMap<string, Setting>
  /** The short form for one upstream, and the setting it stands for. */
  readonly short: string
  readonly long: string
  /** What an unknown name may have been meant to be. */
  readonly known: readonly string[]
  readonly prefix: string
  readonly origin: string
}

const VARIABLES: Naming = {
  named: new Map(SETTINGS.map((setting) => [setting.variable, setting])),
  short: UPSTREAM_URL.variable,
  long: 'SIDECAR_UPSTREAMS',
  known: [...SETTINGS.map(({ variable }) => variable), UPSTREAM_URL.variable, FILE_VARIABLE],
  prefix: 'SIDECAR_',
  origin: 'env',
}

const FLAGS: Naming = {
  named: new Map(SETTINGS.map((setting) => [setting.flag, setting])),
  short: UPSTREAM_URL.flag,
  long: '--upstreams',
  known: [...SETTINGS.map(({ flag }) => flag), UPSTREAM_URL.flag],
  prefix: '--',
  origin: 'flag',
}

function readNamed(values: Named, { named, short, long, known, prefix, origin }: Naming): Reading {
  const given: Given[] = []
  const problems: Problem[] = []
  for (const [name, text] of Object.entries(values)) {
    if (text === undefined) continue
    const setting = named.get(name === short ? long : name)
    if (setting === undefined) {
      // The common prefix would make any two names look alike.
      const meant = nearest(
        name.slice(prefix.length),
        known.map((candidate) => candidate.slice(prefix.length)),
      )
      const hint = meant === undefined ? '' : `; did you mean ${prefix}${meant}?`
      problems.push({ path: '', message: `${name} is not a setting${hint}`, origin: name })
    } else if (name === short && values[long] !== undefined) {
      problems.push({ path: setting.path, message: `must have ${short} or ${long}, not both`, origin: name })
    } else {
      const value = name === short ? [{ prefix: '/', url: text }] : decode(text, setting.kind)
      given.push({ setting, value, origin: `${origin} ${name}`, place: () => name })
    }
  }
  return { given, problems, readable: true }
}

function decode(text: string, kind: Setting['kind']): unknown {
  switch (kind) {
    case 'text':
      return text
    case 'number':
      // Not Number(text) alone: that takes '', ' 1 ', 0x10, 1e3 and Infinity.
      return /^-?(?:0|[1-9]\d*)(?:\.\d+)?$/.test(text) ? Number(text) : text
    case 'boolean':
      if (text === 'true') return true
      return text === 'false' ? false : text
    case 'texts':
      if (text.trim() === '') return []
      return text.trimStart().startsWith('[') ? flow(text) : text.split(',').map((item) => item.trim())
    case 'list':
      return flow(text)
  }
}

function flow(text: string): unknown {
  const yaml = parseYaml(text)
  return yaml.ok ? yaml.value : text
}
