/**
 * The guard of `npm run bench -- --check`: fails when a request with a cached token costs far more than
 * it should beside the peers that are installed. nginx is none of them: it spends its time in system calls,
 * which slow down in another measure than JavaScript on a busy machine.
 */
import type { Bench } from './compare.ts'
import { median } from './lab.ts'
import { hot } from './requests.ts'

/** The most that a request may cost beside each peer: 1.2 to 1.7, 0.7 to 0.9 and 0.4 to 0.6 were measured. */
const BOUNDS: Readonly<Record<string, number>> = { limit: 1.9, envoy: 1.2, 'http-proxy': 0.75 }

/**
 * Resolves with false when the sidecar is too expensive, twice.
 * About one Node process in 30, of the sidecar or of `limit`, costs 1.4 times as much from
 * its start to its end: what fails is measured again with new processes.
 */
export async function check(bench: Bench): Promise<boolean> {
  return (await checkOnce(bench)) || (await checkOnce(bench))
}

async function checkOnce(bench: Bench): Promise<boolean> {
  const { rows } = await hot({ ...bench, peers: bench.peers ?? ['sidecar', ...Object.keys(BOUNDS)] })
  const costs = (name: string) =>
    rows.find((row) => row.name === name)?.samples?.map((sample) => sample['CPU µs'] ?? Number.NaN) ?? []
  const own = costs('sidecar')
  let passed = true
  for (const [name, bound] of Object.entries(BOUNDS)) {
    // Within each round: from one to the next the speed of a machine may double.
    const ratio = median(costs(name).map((cost, round) => (own[round] ?? Number.NaN) / cost))
    if (Number.isNaN(ratio)) {
      continue
    }
    console.log(`CPU per request, sidecar / ${name}: ${ratio.toFixed(2)} (at most ${bound})`)
    if (ratio > bound) {
      passed = false
    }
  }
  return passed
}
