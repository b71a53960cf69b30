/** Reads the alerting rules of k8s/components/monitoring, and runs promtool over them. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

interface Rule {
  readonly alert?: string
  readonly record?: string
  readonly expr: string
  readonly for?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}

export function monitoringFile(name: string): string {
  return readFileSync(new URL(`../../k8s/components/monitoring/${name}`, import.meta.url), 'utf8')
}

export const RULES: RuleFile = parse(monitoringFile('prometheus-rule.yaml')).spec
export const ALERTS = RULES.groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined)

/** An alert's rules and the recording rules that they read: promtool evaluates each rule at each sample. */
export function rulesFor(alert: string): ReadonlySet<Rule> {
  const all = RULES.groups.flatMap(({ rules }) => rules)
  const needed = new Set<Rule>()
  const addAll = (rules: readonly Rule[]) => {
    for (const rule of rules.filter((rule) => !needed.has(rule))) {
      needed.add(rule)
      addAll(all.filter(({ record }) => record !== undefined && rule.expr.includes(record)))
    }
  }
  addAll(all.filter((rule) => rule.alert === alert))
  return needed
}

export function promtool(args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync('promtool', args, {
    encoding: 'utf8',
    env: { ...process.env, GOGC: '800' }, // a quarter less CPU time
  })
  return { status, output: stdout + stderr }
}
