/**
 * Measures several peers side by side: each is started, checked and warmed up, then measured
 * in rounds that alternate, each beginning with another peer, so that the drift of the machine cancels.
 * Out: medians over the rounds.
 */
import { freePort } from '../test/support/free-port.ts'
import { cpuMicroseconds, type Lab, listening, median, type Running } from './lab.ts'
import { checkPeer, type Peer } from './peers.ts'
import type { Trust } from './trust.ts'

/** What a scenario works with. */
export interface Bench {
  readonly lab: Lab
  readonly trust: Trust
  readonly node: string
  readonly smallUpstream: number
  readonly rounds: number
  readonly seconds: number
  /** V8 of Node 26 goes on compiling for some 100,000 requests. */
  readonly warmUpSeconds: number
  readonly quick: boolean
  /** Names of the peers that take part; absent: all. */
  readonly peers?: readonly string[]
  /** Notes a peer or scenario that was left out. */
  skip(reason: string): void
}

export type Figures = Readonly<Record<string, number>>

export interface Row {
  readonly name: string
  readonly figures: Figures
  /** The figures of each round, of which `figures` are the medians. */
  readonly samples?: readonly Figures[]
}

export interface Section {
  readonly title: string
  readonly rows: readonly Row[]
}

/** One line of a comparison. */
export interface Entrant {
  readonly peer: Peer
  /** Default: the peer's name. */
  readonly label?: string
  /** Loads the peer for one round; resolves with its figures. `cpu` is what the peer used meanwhile. */
  readonly load: (port: number, seconds: number) => Promise<(cpu: number) => Figures>
}

interface Started {
  readonly entrant: Entrant
  readonly name: string
  readonly port: number
  readonly running: Running
  readonly samples: Figures[]
}

/** Whether a peer is wanted and installed. */
export function takesPart({ peers, skip }: Bench, { name, missing }: Peer): boolean {
  if (peers !== undefined && !peers.includes(name)) {
    return false
  }
  if (missing !== undefined) {
    skip(`${name}: ${missing}`)
  }
  return missing === undefined
}

/**
 * Measures the entrants that take part. A peer that fails its check is left out; the sidecar must pass it.
 */
export async function compare(
  bench: Bench,
  entrants: readonly Entrant[],
  { upstreamPort = bench.smallUpstream, seconds = bench.seconds } = {},
): Promise<Row[]> {
  const started: Started[] = []
  try {
    for (const entrant of entrants.filter(({ peer }) => takesPart(bench, peer))) {
      const one = await startOne(bench, entrant, upstreamPort)
      if (one !== undefined) {
        started.push(one)
      }
    }
    for (let round = 0; round < bench.rounds; round++) {
      const first = round % Math.max(1, started.length)
      for (const one of [...started.slice(first), ...started.slice(0, first)]) {
        const before = cpuMicroseconds(one.running)
        const figures = await one.entrant.load(one.port, seconds)
        one.samples.push(figures(cpuMicroseconds(one.running) - before))
      }
    }
    return started.map(({ name, samples }) => ({ name, figures: medians(samples), samples }))
  } finally {
    await Promise.all(started.map(({ running }) => running.stop()))
  }
}

async function startOne(bench: Bench, entrant: Entrant, upstreamPort: number): Promise<Started | undefined> {
  const port = await freePort()
  const { peer, label: name = peer.name } = entrant
  let running: Running | undefined
  try {
    running = await peer.start({ ...bench, port, upstreamPort })
    await listening(port)
    await checkPeer(peer, bench.trust, port)
    await entrant.load(port, bench.warmUpSeconds)
    return { entrant, name, port, running, samples: [] }
  } catch (cause) {
    await running?.stop()
    const message = `${name}: ${cause instanceof Error ? cause.message : cause}`
    if (peer.name === 'sidecar') {
      throw new Error(message, { cause })
    }
    bench.skip(message)
    return undefined
  }
}

function medians(samples: readonly Figures[]): Figures {
  const names = Object.keys(samples[0] ?? {})
  return Object.fromEntries(
    names.map((name) => [name, median(samples.map((sample) => sample[name] ?? Number.NaN))]),
  )
}
