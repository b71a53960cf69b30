/**
 * The guard of `npm run bench -- --check`: fails when a request with a cached token costs far more than it should
 * beside the peers that are installed, three times over. The bounds are generous, because a busy machine is noisy.
 */
import type { Bench } from './compare.ts'
import { hot } from './requests.ts'

const ATTEMPTS = 3
/** The most that a request may cost beside each peer. */
const BOUNDS: Readonly<Record<string, number>> = { nginx: 4, envoy: 1.3, 'http-proxy': 1 }

/** Resolves with false when the sidecar is too expensive in every attempt. */
export async function check(bench: Bench): Promise<boolean> {
  const peers = bench.peers ?? ['sidecar', ...Object.keys(BOUNDS)]
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const { rows } = await hot({ ...bench, peers })
    const cost = (name: string) => rows.find((row) => row.name === name)?.figures['CPU µs'] ?? Number.NaN
    const ratios = Object.entries(BOUNDS).map(([name, bound]) => {
      const ratio = cost('sidecar') / cost(name)
      if (!Number.isNaN(ratio))
        console.log(`CPU per request, sidecar / ${name}: ${ratio.toFixed(2)} (at most ${bound})`)
      return Number.isNaN(ratio) || ratio <= bound
    })
    if (!ratios.includes(false)) return true
  }
  return false
}
