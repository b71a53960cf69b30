/**
 * Settings whose feature is not built yet: refused when set to anything but their default, never ignored.
 *
 * @module
 */
import { isDeepStrictEqual } from 'node:util'
import type { Problem } from './problem.ts'
import type { Given } from './reading.ts'

/** Settings, or groups of settings, that are refused. Removing a line enables the feature. */
export const NOT_YET: readonly string[] = ['workers']

/** The refused setting or group that a setting belongs to. */
export function featureNotYet(path: string, notYet: readonly string[]): string | undefined {
  return notYet.find((name) => path === name || path.startsWith(`${name}.`))
}

/** One problem for each refused setting or group that is given another value than its default. */
export function refuseNotYet(given: Iterable<Given>, notYet: readonly string[]): Problem[] {
  const problems = new Map<string, Problem>()
  for (const { setting, value, place } of given) {
    const path = featureNotYet(setting.path, notYet)
    if (path === undefined || problems.has(path) || isDeepStrictEqual(value, setting.default)) continue
    problems.set(path, { path, message: 'not supported yet', origin: place([]) })
  }
  return [...problems.values()]
}
