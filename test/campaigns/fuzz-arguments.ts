/**
 * The command line of the fuzz run: `[seconds] [--seed N] [--only N]`.
 *
 * npm keeps options that stand behind a script's name without `--` to itself, so a second number is taken for the seed.
 *
 * @module
 */
import { parseArgs } from 'node:util'

/** What the fuzz run is asked to do. */
export interface FuzzArguments {
  readonly seconds: number
  readonly seed: number
  /** The one connection of this seed that is to be played. */
  readonly only: number | undefined
}

/**
 * Reads the arguments.
 *
 * @throws Error with the usage when they are not as they must be
 */
export function parseFuzzArguments(args: readonly string[], anySeed: number): FuzzArguments {
  const { positionals, values } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { seed: { type: 'string' }, only: { type: 'string' } },
  })
  const [seconds = '30', seed = values.seed ?? String(anySeed), more] = positionals
  const numbers = [seconds, seed, values.only ?? '0']
  if (more !== undefined || !numbers.every((text) => /^[0-9]{1,15}$/.test(text)) || Number(seconds) === 0) {
    throw new Error('usage: npm run fuzz [seconds] [-- --seed N [--only CONNECTION]]')
  }
  return {
    seconds: Number(seconds),
    seed: Number(seed),
    only: values.only === undefined ? undefined : Number(values.only),
  }
}
