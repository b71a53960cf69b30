/**
 * The scenario of a sidecar that is measured after pauses, in which other processes have its core, and of one
 * that is warm. Its cost is told beside that of `limit`, which has the same pauses.
 */
import { type Bench, compare, type Entrant, type Row, type Section, takesPart } from './compare.ts'
import { median } from './lab.ts'
import { requestText, writeRequests } from './load.ts'
import { envoy, limit, nginx, type Peer, sidecar } from './peers.ts'
import { entrant } from './requests.ts'

const PAUSE_SECONDS = 20
const QUICK_PAUSE_SECONDS = 2

export async function pauses(bench: Bench): Promise<Section> {
  const requests = writeRequests(bench.lab, [requestText(bench.trust.mint())])
  const entrantOf = (peer: Peer) => entrant(bench, peer, { requests })
  const measured = [sidecar, limit].map(entrantOf)
  const others = [nginx, envoy].filter((peer) => takesPart(bench, peer))
  const pauseSeconds = bench.quick ? QUICK_PAUSE_SECONDS : PAUSE_SECONDS
  // They have the core in each pause, one after the other.
  const duringPauses = others.map((peer): Entrant => {
    const { load } = entrantOf(peer)
    return { peer, load: (port) => load(port, pauseSeconds / others.length) }
  })
  const warm = await compare(bench, measured)
  const paused = await compare(bench, [...measured, ...duringPauses])
  const rows = [...rowsOf('warm', warm), ...rowsOf('after pauses', paused)]
  return { title: `One token, warm and after pauses of ${pauseSeconds} s`, rows }
}

/** The rows of the sidecar and of `limit`. The ratio is the median of those within each round. */
function rowsOf(when: string, rows: readonly Row[]): Row[] {
  const own = rows.find(({ name }) => name === sidecar.name)
  const ofLimit = rows.find(({ name }) => name === limit.name)
  if (own === undefined || ofLimit === undefined) {
    return []
  }
  const costsOfLimit = costsOf(ofLimit)
  const ratios = costsOf(own).map((cost, round) => cost / (costsOfLimit[round] ?? Number.NaN))
  return [
    { name: `sidecar, ${when}`, figures: { ...own.figures, 'CPU to limit': median(ratios) } },
    { name: `limit, ${when}`, figures: ofLimit.figures },
  ]
}

const costsOf = ({ samples = [] }: Row) => samples.map((sample) => sample['CPU µs'] ?? Number.NaN)
