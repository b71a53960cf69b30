/**
 * `npm run bench`: what a forwarded request costs the process that forwards it, beside its peers; see README.md.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Bench } from './bench.ts'
import { type BenchOptions, readCommandLine, USAGE } from './command-line.ts'
import { runGuard } from './guard.ts'
import { openLab } from './lab/lab.ts'
import { describeMachine } from './lab/machine.ts'
import { installNpmPeers } from './lab/npm-peers.ts'
import { canPin } from './lab/pin.ts'
import { makeTrust } from './lab/trust.ts'
import { generator } from './load/load.ts'
import { smallUpstream, startSmallUpstream } from './peers/upstreams.ts'
import { chartOf } from './report/chart.ts'
import { type Section, tableOf } from './report/columns.ts'
import { type Results, reportOf } from './report/report.ts'
import { SCENARIOS } from './suite.ts'

/** All that a quick run compares with, but for the first scenario. */
const QUICK_PEERS = ['sidecar', 'nginx', 'http-proxy']

const options = readCommandLine(
  process.argv.slice(2),
  SCENARIOS.map(({ name }) => name),
)
if (typeof options === 'string') {
  console.error(`${options}\n\n${USAGE}`)
  process.exit(2)
}
process.exit((await (options.check ? runGuard(options) : runSuite(options))) ? 0 : 1)

async function runSuite(options: BenchOptions): Promise<boolean> {
  const { rounds, seconds, quick, only, peers } = options
  const npmMissing = installNpmPeers()
  const lab = openLab()
  const missing = new Set<string>()
  if (generator !== 'wrk') missing.add('wrk is not installed: load by the own client, which costs more')
  const bench: Bench = {
    lab,
    trust: makeTrust(lab),
    smallUpstream: await startSmallUpstream(lab),
    rounds,
    seconds,
    quick,
    ...(peers && { peers }),
    ...(npmMissing !== undefined && { npmMissing }),
    lacks: (reason) => missing.add(reason),
  }
  const sections: Section[] = []
  let failed = false
  for (const { name, run } of SCENARIOS.filter(({ name }) => only?.includes(name) ?? true)) {
    const started = performance.now()
    const section = await run(
      quick && name !== 'hot' ? { ...bench, peers: peers ?? QUICK_PEERS } : bench,
    ).catch((cause) => {
      missing.add(`scenario ${name} failed: ${cause instanceof Error ? cause.message : cause}`)
      failed = true
    })
    if (!section) continue
    sections.push(section)
    const took = ((performance.now() - started) / 1000).toFixed(0)
    console.log(`\n## ${section.title} (${name}, ${took} s)\n\n${section.note}\n\n${tableOf(section.rows)}`)
  }
  const whole = !failed && !quick && only === undefined && peers === undefined
  write(whole, {
    machine: describeMachine(Date.now),
    generator,
    upstream: smallUpstream,
    pinned: canPin,
    rounds,
    seconds,
    missing: [...missing],
    sections,
  })
  return !failed
}

/** Only a whole run may replace the published figures. */
function write(whole: boolean, results: Results): void {
  const directory = join(import.meta.dirname, whole ? '../docs' : 'results')
  const name = whole ? 'performance' : 'latest'
  mkdirSync(directory, { recursive: true })
  const file = (extension: string) => join(directory, `${name}.${extension}`)
  writeFileSync(file('json'), `${JSON.stringify(results, null, 2)}\n`)
  writeFileSync(file('md'), reportOf(results, `${name}.svg`))
  const hot = results.sections.find((section) => section.rows.some(({ figures }) => figures.cpuMicros))
  if (hot !== undefined) writeFileSync(file('svg'), chartOf(hot))
  for (const one of results.missing) console.log(`\nleft out: ${one}`)
  console.log(`\nwritten: ${file('md')}`)
}
