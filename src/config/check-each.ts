/**
 * Checks every setting by itself.
 *
 * In: what was given. Out: settings of the right types, with the default in the place of each one that is
 * broken, so that rules about the others can still be checked; and all that is wrong.
 *
 * @module
 */
import type { z } from 'zod'
import { nearest } from './nearest.ts'
import { type Problem, type Step, writePath } from './problem.ts'
import type { Given } from './reading.ts'
import { type Settings, settingsSchema } from './schema.ts'
import { SETTINGS, type Setting } from './settings.ts'

/** The outcome of the check. */
export interface Checked {
  readonly settings: Settings
  /** The units (see {@link Setting.unit}) that hold a mistake. */
  readonly broken: ReadonlySet<string>
  readonly issues: readonly Problem[]
}

/** Checks what was given, by setting path. */
export function checkEach(given: ReadonlyMap<string, Given>): Checked {
  const result = settingsSchema.safeParse(tree(given.values()))
  if (result.success) return { settings: result.data, broken: new Set(), issues: [] }
  const broken = new Set<string>()
  const issues = new Map<string, Problem>()
  for (const issue of result.error.issues) {
    for (const source of sourceOf(issue, [...given.values()])) {
      broken.add(source.setting.unit)
      for (const problem of describe(issue, source)) {
        issues.set(`${problem.path}: ${problem.message}`, problem) // one value can miss one wish in several ways
      }
    }
  }
  const sound = [...given.values()].filter(({ setting }) => !broken.has(setting.unit))
  return { settings: settingsSchema.parse(tree(sound)), broken, issues: [...issues.values()] }
}

/**
 * What was given where the issue is: the setting itself or, as a required member that is missing has no place
 * of its own, another member of its group. One at most.
 */
function sourceOf(issue: z.core.$ZodIssue, given: readonly Given[]): Given[] {
  const concerned = SETTINGS.find(({ steps }) => steps.every((step, at) => step === issue.path[at]))
  const own = given.filter(({ setting }) => setting === concerned)
  return [...own, ...given.filter(({ setting }) => setting.unit === concerned?.unit)].slice(0, 1)
}

/** Puts flat settings into groups. Names come from the schema, never from the user. */
function tree(given: Iterable<Given>): object {
  const root: Branch = {}
  for (const { setting, value } of given) {
    let branch = root
    for (const step of setting.steps.slice(0, -1)) branch = inner(branch, step)
    branch[String(setting.steps.at(-1))] = value
  }
  return root
}

interface Branch {
  [name: string]: unknown
}

function inner(branch: Branch, name: string): Branch {
  const next: Branch = {}
  branch[name] ??= next
  return branch[name] as Branch
}

function describe(issue: z.core.$ZodIssue, { setting, place }: Given): Problem[] {
  const steps = issue.path.map((step): Step => (typeof step === 'number' ? step : String(step)))
  const problem = (path: readonly Step[], message: string, key?: 'key'): Problem => ({
    path: writePath(path),
    message,
    origin: place(path.slice(setting.steps.length), key),
  })
  if (issue.code !== 'unrecognized_keys') return [problem(steps, issue.message)]
  return issue.keys.map((key) => {
    const meant = nearest(key, setting.memberNames)
    const hint =
      meant === undefined ? `known here: ${setting.memberNames.join(', ')}` : `did you mean ${meant}?`
    return problem([...steps, key], `unknown setting; ${hint}`, 'key')
  })
}
