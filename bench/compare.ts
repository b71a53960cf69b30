/**
 * Measures several peers side by side.
 *
 * Each is started, checked and warmed up; then they are measured in rounds, one after the other, each round beginning
 * with another one, so that the drift of the machine cancels. Out: the medians over the rounds, and the ratio of CPU
 * time to nginx where it took part.
 *
 * @module
 */
import type { Bench } from './bench.ts'
import type { Running } from './lab/lab.ts'
import { freePort, listening } from './lab/ports.ts'
import { cpuMicroseconds, residentMegabytes } from './lab/proc.ts'
import type { LoadResult } from './load/load.ts'
import { checkPeer } from './peers/check.ts'
import type { Peer } from './peers/peer.ts'
import type { Row } from './report/columns.ts'
import { figuresOf, type Sample, withRatios } from './report/figures.ts'

/** One line of a comparison. */
export interface Entrant {
  readonly peer: Peer
  /** Instead of the peer's name. */
  readonly label?: string
  /** Puts load on the peer for one round. */
  load(port: number, seconds: number): Promise<LoadResult>
}

/** How to compare. */
export interface CompareOptions {
  /** The default is the one that answers with 1 KiB, for which peers are checked before they are measured. */
  readonly upstreamPort?: number
  /** Seconds of one measurement, if not the run's. */
  readonly seconds?: number
}

interface Started {
  readonly entrant: Entrant
  readonly name: string
  readonly port: number
  readonly running: Running
  readonly samples: Sample[]
}

/** Measures; whoever cannot take part is left out and noted. */
export async function compare(
  bench: Bench,
  entrants: readonly Entrant[],
  { upstreamPort, seconds = bench.seconds }: CompareOptions = {},
): Promise<Row[]> {
  const started: Started[] = []
  try {
    for (const entrant of entrants.filter((entrant) => takesPart(bench, entrant.peer))) {
      const one = await startOne(bench, entrant, upstreamPort)
      if (one !== undefined) started.push(one)
    }
    for (let round = 0; round < bench.rounds; round++) {
      const first = round % Math.max(1, started.length)
      for (const one of [...started.slice(first), ...started.slice(0, first)]) {
        one.samples.push(await measure(one, seconds))
      }
    }
    return withRatios(
      started.map(({ name, running, samples }) => {
        const rss = residentMegabytes(running.pid)
        return { name, figures: { ...figuresOf(samples), rss } }
      }),
    )
  } finally {
    await Promise.all(started.map(({ running }) => running.stop()))
  }
}

/** Starts, checks and warms up; a peer that does not work is left out, the sidecar must. */
async function startOne(bench: Bench, entrant: Entrant, upstreamPort?: number): Promise<Started | undefined> {
  const port = await freePort()
  const { peer, label: name = peer.name } = entrant
  const running = peer.start({ ...bench, port, upstreamPort: upstreamPort ?? bench.smallUpstream })
  try {
    await listening(port)
    if (upstreamPort === undefined) await checkPeer(peer, bench.trust, port)
    await entrant.load(port, 1) // warm-up: compiled code, open connections
    return { entrant, name, port, running, samples: [] }
  } catch (cause) {
    await running.stop()
    if (peer.name === 'sidecar') throw cause
    bench.lacks(`${name}: ${cause instanceof Error ? cause.message : cause}`)
    return undefined
  }
}

function takesPart({ peers, npmMissing, lacks }: Bench, { name, missing }: Peer): boolean {
  if (peers !== undefined && !peers.some((wanted) => name.startsWith(wanted))) return false
  const reason = missing ?? (name === 'fastify' ? npmMissing : undefined)
  if (reason !== undefined) lacks(`${name}: ${reason}`)
  return reason === undefined
}

async function measure({ entrant, running, port, name }: Started, seconds: number): Promise<Sample> {
  const before = cpuMicroseconds(running.pid)
  try {
    const result = await entrant.load(port, seconds)
    return { ...result, cpuMicros: cpuMicroseconds(running.pid) - before }
  } catch (cause) {
    throw new Error(`${name}: ${cause instanceof Error ? cause.message : cause}`, { cause })
  }
}
