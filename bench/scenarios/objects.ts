/**
 * Large objects, down and up: how fast they move and what a gigabyte costs.
 *
 * @module
 */
import { join } from 'node:path'
import type { Bench, Scenario } from '../bench.ts'
import { compare } from '../compare.ts'
import type { LoadReport } from '../load/load.ts'
import type { ObjectLoad } from '../load/object-client.ts'
import { haproxy } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { stock } from '../peers/node-peers.ts'
import { sidecar } from '../peers/sidecar.ts'
import { startObjectUpstream } from '../peers/upstreams.ts'
import type { Row } from '../report/columns.ts'
import { only } from '../report/figures.ts'

const MIB = 2 ** 20
const PEERS = [sidecar(), nginx, haproxy, stock]

/** Sizes and directions; a quick run moves a third of the bytes, and no gigabytes. */
const KINDS = [
  { name: '10 MiB down', direction: 'down', size: 10 * MIB, count: 60 },
  { name: '10 MiB up', direction: 'up', size: 10 * MIB, count: 60 },
  { name: '1 GiB down', direction: 'down', size: 1024 * MIB, count: 1 },
  { name: '1 GiB up', direction: 'up', size: 1024 * MIB, count: 1 },
] as const

export const objects: Scenario = {
  name: 'objects',
  async run(bench) {
    const upstreamPort = await startObjectUpstream(bench.lab)
    const rows: Row[] = []
    for (const kind of KINDS.filter(({ count }) => !bench.quick || count > 1)) {
      rows.push(...(await compareKind(bench, upstreamPort, kind)))
    }
    return {
      name: 'objects',
      title: 'Large objects',
      note:
        'One object after the other on one connection; a GB is 1,000,000,000 bytes. Client and upstream share the ' +
        'other core and move each byte as well, so where a proxy needs less than they do, MB/s shows their limit, ' +
        'and CPU s/GB what the proxy costs.',
      rows: only(rows, 'megabytesPerSecond', 'cpuPerGigabyte', 'rss'),
    }
  },
}

async function compareKind(
  bench: Bench,
  upstreamPort: number,
  { name, direction, size, count }: (typeof KINDS)[number],
): Promise<Row[]> {
  const { lab, trust, quick } = bench
  const script = join(import.meta.dirname, '../load/object-client.ts')
  const load = { token: trust.mint('ES256'), direction, size, count: quick ? Math.ceil(count / 3) : count }
  const rows = await compare(
    bench,
    PEERS.map((peer) => ({
      peer,
      load: async (port) => (await lab.ask(script, { ...load, port } satisfies ObjectLoad)) as LoadReport,
    })),
    { upstreamPort },
  )
  return rows.map((row) => ({ ...row, name: `${name}: ${row.name}` }))
}
