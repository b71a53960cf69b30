/** `npm run bench`: measures the sidecar beside its peers and prints tables. See README.md in this folder. */
import { spawnSync } from 'node:child_process'
import { cpus } from 'node:os'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { check } from './check.ts'
import type { Bench, Section } from './compare.ts'
import { flood } from './flood.ts'
import { goalsTable, sectionTable } from './goals.ts'
import { GROWTH } from './growth.ts'
import { openLab } from './lab.ts'
import { accounts, limits, pacing } from './limits.ts'
import { generator } from './load.ts'
import { limitedNeighbours, neighbours } from './neighbours.ts'
import { PEERS, startSmallUpstream } from './peers.ts'
import { start, tokens } from './process.ts'
import { basic, cold, halfLoad, hot, logins, refused, scoped } from './requests.ts'
import { tracing } from './tracing.ts'
import { memory, objects } from './transfers.ts'
import { createTrust } from './trust.ts'

const SCENARIOS: Readonly<Record<string, (bench: Bench) => Promise<Section>>> = {
  hot,
  scoped,
  basic,
  refused,
  cold,
  objects,
  'half-load': halfLoad,
  start,
  tokens,
  memory,
  logins,
  flood,
  limits,
  accounts,
  pacing,
  'limited-neighbours': limitedNeighbours,
  neighbours,
  tracing,
  ...GROWTH,
}

const SCENARIO_NAMES = Object.keys(SCENARIOS)
const GROWTH_NAMES = Object.keys(GROWTH)
const PEER_NAMES = PEERS.map(({ name }) => name)

const USAGE = `npm run bench -- [options]

  --only NAMES     only these scenarios: ${SCENARIO_NAMES.join(', ')};
                   growth: ${GROWTH_NAMES.join(', ')}
  --peers NAMES    only these peers: ${PEER_NAMES.join(', ')}
  --node FILE      runs the sidecar, limit and http-proxy with this Node binary
  --quick          everything once and short, to see that it works
  --check          the guard: fails when a cached token costs far too much beside the peers
`

const options = readOptions()
const lab = openLab()
const skipped = new Set<string>()
const bench: Bench = {
  ...options,
  lab,
  trust: createTrust(lab.directory),
  smallUpstream: await startSmallUpstream(lab),
  skip: (reason) => skipped.add(reason),
}
const nodeVersion = spawnSync(bench.node, ['--version'], { encoding: 'utf8' }).stdout?.trim() ?? ''
if (nodeVersion === '') {
  fail(`--node: cannot run ${bench.node}`)
}

const passed = await (options.check ? check(bench) : runAll())
for (const reason of skipped) {
  console.log(`skipped: ${reason}`)
}
process.exit(passed ? 0 : 1)

async function runAll(): Promise<boolean> {
  console.log(
    `Node ${nodeVersion}, ${cpus().length} x ${cpus()[0]?.model.trim()}, load by ${generator}, ` +
      `${bench.rounds} rounds of ${bench.seconds} s`,
  )
  const results: Record<string, Section> = {}
  let failed = false
  for (const [name, run] of Object.entries(SCENARIOS)) {
    const isSelected = options.only === undefined || options.only.includes(name)
    if (!isSelected) {
      continue
    }
    const began = performance.now()
    try {
      const section = await run(bench)
      results[name] = section
      const took = ((performance.now() - began) / 1000).toFixed(0)
      console.log(`\n## ${section.title} (${name}, ${took} s)\n\n${sectionTable(section)}`)
    } catch (cause) {
      failed = true
      console.log(`\nscenario ${name} failed: ${cause instanceof Error ? cause.message : cause}`)
    }
  }
  const nodeMajor = Number(/\d+/.exec(nodeVersion)?.[0])
  console.log(`\n## Goals\n\n${goalsTable(results, nodeMajor)}\n`)
  return !failed
}

function readOptions() {
  const text = { type: 'string' } as const
  const flag = { type: 'boolean', default: false } as const
  const { values } = parseArgs({
    options: { quick: flag, check: flag, help: flag, only: text, peers: text, node: text },
  })
  const { quick, check, help } = values
  if (help) {
    console.log(USAGE)
    process.exit(0)
  }
  const names = readNames('only', values.only, [...SCENARIO_NAMES, 'growth'])
  const only = names?.flatMap((name) => (name === 'growth' ? GROWTH_NAMES : [name]))
  const peers = readNames('peers', values.peers, PEER_NAMES)
  return {
    quick,
    check,
    ...durationsOf(quick, check),
    node: values.node === undefined ? process.execPath : resolve(values.node),
    ...(only && { only }),
    ...(peers && { peers }),
  }
}

/** How often and how long each row is measured. */
function durationsOf(quick: boolean, check: boolean) {
  if (check) {
    return { rounds: 11, seconds: 1, warmUpSeconds: 8 }
  }
  if (quick) {
    return { rounds: 1, seconds: 1, warmUpSeconds: 1 }
  }
  return { rounds: 5, seconds: 2, warmUpSeconds: 10 }
}

/** The names of an option, separated by commas. Undefined if the option is not given. */
function readNames(option: string, value: string | undefined, known: readonly string[]) {
  const names = value?.split(',')
  const unknown = names?.filter((name) => !known.includes(name)) ?? []
  if (unknown.length > 0) {
    fail(`--${option}: unknown ${unknown.join(', ')}`)
  }
  return names
}

function fail(message: string): never {
  console.error(`${message}\n\n${USAGE}`)
  process.exit(2)
}
