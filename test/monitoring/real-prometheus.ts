/**
 * A real Prometheus that scrapes sidecars every second and evaluates our rules.
 *
 * @module
 */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import type { RuleFile } from './prometheus-rules.ts'

/** What is scraped, and under which labels beside `instance`. */
export interface Target {
  readonly port: number
  readonly labels: Readonly<Record<string, string>>
}

/** One series of an answer. */
export interface Found {
  readonly metric: Readonly<Record<string, string>>
}

/** The outcome of a query. */
export type Queried =
  | { readonly ok: true; readonly found: readonly Found[] }
  | { readonly ok: false; readonly error: string }

/** A Prometheus that runs. */
export interface RealPrometheus {
  /** Evaluates an expression now. */
  query(expression: string): Promise<Queried>
  /** What became of each rule. */
  rules(): Promise<readonly { readonly name: string; readonly health: string; readonly lastError?: string }[]>
}

interface Owner {
  teardown(cleanUp: () => unknown): void
}

/** Why tests that need it are left out; false where it is there. */
export function whyNoPrometheus(): string | false {
  return spawnSync('prometheus', ['--version']).status === 0
    ? false
    : "prometheus is not on this machine (Debian's package prometheus has it)"
}

/** Starts one on a free port of the loopback interface, with storage that goes away with the test. */
export async function startPrometheus(
  t: Owner,
  { targets, rules }: { readonly targets: readonly Target[]; readonly rules: RuleFile },
): Promise<RealPrometheus> {
  const directory = await mkdtemp(join(tmpdir(), 'prometheus-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  const config = {
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.json'],
    scrape_configs: targets.map(({ port, labels: { job, ...labels } }) => ({
      job_name: job,
      static_configs: [{ targets: [`127.0.0.1:${port}`], labels }],
    })),
  }
  // JSON is YAML.
  await writeFile(join(directory, 'prometheus.json'), JSON.stringify(config))
  await writeFile(join(directory, 'rules.json'), JSON.stringify(rules))
  const port = await freePort()
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(directory, 'prometheus.json')}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env['PATH'] } },
  )
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  const ended = new Promise((resolve) => child.once('close', resolve))
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const at = `http://127.0.0.1:${port}`
  await eventually(
    async () => (await fetch(`${at}/-/ready`).catch(() => undefined))?.ok === true,
    () => `Prometheus to be ready: ${said}`,
  )
  return {
    async query(expression) {
      const response = await fetch(`${at}/api/v1/query`, {
        method: 'POST',
        body: new URLSearchParams({ query: expression }),
      })
      const answer = (await response.json()) as { data: { result: readonly Found[] }; error?: string }
      if (!response.ok) return { ok: false, error: `${answer.error}` }
      return { ok: true, found: answer.data.result }
    },
    async rules() {
      const response = await fetch(`${at}/api/v1/rules`)
      const { data } = (await response.json()) as {
        data: { groups: { rules: { name: string; health: string; lastError?: string }[] }[] }
      }
      return data.groups.flatMap(({ rules }) => rules)
    },
  }
}
