/**
 * The report of a run, as Markdown.
 *
 * @module
 */
import type { Machine } from '../lab/machine.ts'
import { type Section, tableOf } from './columns.ts'
import { goalsOf } from './goals.ts'

/** Everything a run leaves; written as JSON, too. */
export interface Results {
  readonly machine: Machine
  /** The generator of loads without a rate. */
  readonly generator: string
  /** What answers with 1 KiB. */
  readonly upstream: string
  readonly pinned: boolean
  readonly rounds: number
  readonly seconds: number
  /** Peers that could not take part, and why. */
  readonly missing: readonly string[]
  readonly sections: readonly Section[]
}

/** Writes the report; `chart` is the file name of the chart beside it. */
export function reportOf(results: Results, chart: string): string {
  const { machine, sections, missing } = results
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name} ${version}`)
  const cores = results.pinned
    ? 'The proxy under test is pinned to one core, load and upstream to another.'
    : 'Nothing is pinned: the machine has one core or no `taskset`.'
  const goals = goalsOf(sections).map(
    ({ goal, reads, reached }) => `| ${goal} | ${reads} | ${reached ? 'reached' : '**missed**'} |`,
  )
  return [
    '# Performance',
    'What a request costs the process that forwards it, beside its peers in one run. Written by `npm run bench`; the ' +
      'figures are in [performance.json](performance.json), how they are found in [bench/](../bench/README.md).',
    `Measured ${machine.date} at ${machine.commit} on ${machine.cores} x ${machine.cpu}, ` +
      `${machine.memoryGigabytes} GB, Linux ${machine.kernel}. ${versions.join(', ')}. Load by ${results.generator}; ` +
      `upstream: ${results.upstream}.`,
    `${cores} CPU time is user and system time of the proxy from \`/proc\`, its threads included. Figures are medians ` +
      `of ${results.rounds} alternating rounds of ${results.seconds} s (half of that for cold and refused tokens and ` +
      'one connection). Ratios within a run mean something on other machines, absolute times do not.',
    missing.length === 0
      ? 'Every peer took part.'
      : `Left out:\n\n${missing.map((one) => `- ${one}`).join('\n')}`,
    `![CPU time per request](${chart})`,
    ...(goals.length === 0 ? [] : ['## Goals', `| goal | found | |\n|---|---:|---|\n${goals.join('\n')}`]),
    ...sections.flatMap(({ title, note, rows }) => [`## ${title}`, note, tableOf(rows)]),
  ]
    .join('\n\n')
    .concat('\n')
}
