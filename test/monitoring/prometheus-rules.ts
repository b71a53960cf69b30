/**
 * The rules of k8s/components/monitoring, as Prometheus takes them, and the programs that check them.
 *
 * @module
 */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

/** One rule. */
export interface Rule {
  readonly alert?: string
  readonly record?: string
  readonly expr: string
  readonly for?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

/** What a rule file of Prometheus holds. */
export interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}

/** An alert. */
export type AlertRule = Rule & { readonly alert: string }

/** The text of a file of the component. */
export function monitoringFile(name: string): string {
  return readFileSync(new URL(`../../k8s/components/monitoring/${name}`, import.meta.url), 'utf8')
}

/** The rules inside the PrometheusRule. */
export function readRules(): RuleFile {
  return parse(monitoringFile('prometheus-rule.yaml')).spec
}

/** All alerts among them. */
export function alertsOf({ groups }: RuleFile): AlertRule[] {
  return groups.flatMap(({ rules }) => rules.filter((rule): rule is AlertRule => rule.alert !== undefined))
}

/** How a program ended. */
export interface Ended {
  readonly code: number
  readonly output: string
}

/** Runs promtool; its code is -1 where there is none. */
export function promtool(args: readonly string[], stdin = ''): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile('promtool', [...args], (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1
      resolve({ code, output: `${stdout}${stderr}` })
    })
    child.stdin?.on('error', () => {}) // it may not read any
    child.stdin?.end(stdin)
  })
}

/** Why tests that need the program are left out; false where it is there. */
export async function whyNoPromtool(): Promise<string | false> {
  const { code } = await promtool(['--version'])
  return code === 0 ? false : "promtool is not on this machine (Debian's package prometheus has it)"
}
