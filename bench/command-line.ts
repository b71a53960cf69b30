/**
 * What the command line of `npm run bench` asks for.
 *
 * @module
 */
import { parseArgs } from 'node:util'

/** A run of the suite, or of the guard. */
export interface BenchOptions {
  readonly rounds: number
  /** Whole seconds: wrk knows no others. */
  readonly seconds: number
  readonly quick: boolean
  /** Scenarios wanted; absent: all. */
  readonly only?: readonly string[]
  /** Peers wanted; absent: all. */
  readonly peers?: readonly string[]
  readonly check: boolean
  readonly writeBaseline: boolean
}

export const USAGE = `npm run bench -- [options]

  --quick            everything once for a second, to see that it works; under two minutes
  --only NAMES       only these scenarios, separated by commas
  --peers NAMES      only these peers, separated by commas
  --rounds N         measurements of each peer (default 5)
  --seconds S        whole seconds of one measurement (default 2)
  --check            the guard: compares the CPU ratio to stock http-proxy with bench/baseline.json
  --write-baseline   with --check: measures and writes bench/baseline.json instead

A full run writes docs/performance.md, .svg and .json, any other bench/results/latest.*
`

/** Reads the arguments; a string tells what is wrong with them. */
export function readCommandLine(
  args: readonly string[],
  scenarios: readonly string[],
): BenchOptions | string {
  let values: ReturnType<typeof parse>
  try {
    values = parse(args)
  } catch (error) {
    return String(error)
  }
  const { quick, check } = values
  const rounds = Number(values.rounds ?? (quick ? 1 : 5))
  const seconds = Number(values.seconds ?? (quick ? 1 : 2))
  if (!(Number.isInteger(rounds) && rounds > 0)) return '--rounds wants a whole number from 1'
  if (!(Number.isInteger(seconds) && seconds > 0)) return '--seconds wants a whole number from 1'
  const only = values.only?.split(',')
  const unknown = only?.filter((name) => !scenarios.includes(name)) ?? []
  if (unknown.length > 0) return `no scenario ${unknown.join(', ')}; there are ${scenarios.join(', ')}`
  if (values['write-baseline'] && !check) return '--write-baseline goes with --check'
  const peers = values.peers?.split(',')
  return {
    rounds,
    seconds,
    quick,
    check,
    writeBaseline: values['write-baseline'],
    ...(only && { only }),
    ...(peers && { peers }),
  }
}

function parse(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      peers: { type: 'string' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      check: { type: 'boolean', default: false },
      'write-baseline': { type: 'boolean', default: false },
    },
  }).values
}
