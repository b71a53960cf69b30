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
import { median } from './lab/statistics.ts'
import type { LoadResult } from './load/load.ts'
import { checkPeer } from './peers/check.ts'
import type { Peer } from './peers/peer.ts'
import type { Row } from './report/columns.ts'

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

/** A measurement. */
export interface Sample extends LoadResult {
  readonly cpuMicros: number
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

/** The medians of several measurements. */
export function figuresOf(samples: readonly Sample[]): Row['figures'] {
  const of = (figure: (sample: Sample) => number) => median(samples.map(figure))
  return {
    cpuMicros: of(({ cpuMicros, requests }) => cpuMicros / requests),
    perSecond: of(({ requests, seconds }) => requests / seconds),
    p50: of(({ p50 }) => p50 / 1000),
    p99: of(({ p99 }) => p99 / 1000),
    megabytesPerSecond: of(({ bytes, seconds }) => bytes / 1e6 / seconds),
    cpuPerGigabyte: of(({ cpuMicros, bytes }) => cpuMicros / 1e6 / (bytes / 1e9)),
  }
}

/** Adds the ratio of CPU time to nginx and to stock http-proxy, where they are among the rows. */
export function withRatios(rows: readonly Row[]): Row[] {
  const cost = (name: string) => rows.find((row) => row.name === name)?.figures.cpuMicros
  const [nginx, stock] = [cost('nginx'), cost('http-proxy')]
  return rows.map(({ name, figures }) => {
    const { cpuMicros } = figures
    const toNginx = cpuMicros !== undefined && nginx !== undefined && { toNginx: cpuMicros / nginx }
    const toStock = cpuMicros !== undefined && stock !== undefined && { toStock: cpuMicros / stock }
    return { name, figures: { ...figures, ...toNginx, ...toStock } }
  })
}

/** Half the time of a measurement, in whole seconds. */
export const halved = (seconds: number): number => Math.ceil(seconds / 2)

/** Rows with only these figures. */
export function only(rows: readonly Row[], ...wanted: readonly (keyof Row['figures'])[]): Row[] {
  return rows.map(({ name, figures }) => ({
    name,
    figures: Object.fromEntries(
      wanted.flatMap((one) => (figures[one] === undefined ? [] : [[one, figures[one]]])),
    ),
  }))
}
