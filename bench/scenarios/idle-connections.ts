/**
 * Five thousand clients that are connected and silent: what they hold in memory, and whether they cost CPU time.
 *
 * @module
 */
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Scenario } from '../bench.ts'
import { freePort, listening } from '../lab/ports.ts'
import { cpuMicroseconds, residentMegabytes } from '../lab/proc.ts'
import { requestText, writeRequests } from '../lab/requests.ts'
import type { IdleLoad } from '../load/idle-client.ts'
import { haproxy } from '../peers/haproxy.ts'
import { nginx } from '../peers/nginx.ts'
import { stock } from '../peers/node-peers.ts'
import type { Peer } from '../peers/peer.ts'
import { sidecar } from '../peers/sidecar.ts'
import type { Row } from '../report/columns.ts'

const CONNECTIONS = 5000
/** Files a client or proxy has open beside its connections. */
const OTHER_FILES = 400

export const idleConnections: Scenario = {
  name: 'idle',
  async run(bench) {
    const limit = fileLimit()
    const connections = Math.min(CONNECTIONS, limit - OTHER_FILES)
    const rows: Row[] = []
    const peers = [sidecar(), nginx, haproxy, stock].filter(
      ({ name, missing }) => missing === undefined && (bench.peers?.includes(name) ?? true),
    )
    for (const peer of peers) rows.push(await measure(bench, peer, connections))
    return {
      name: 'idle',
      title: 'Idle connections',
      note:
        'Each has had one request answered and is then silent. Memory before the first and with all of them; CPU ' +
        `time while nothing happens.${connections < CONNECTIONS ? ` Only ${limit} files may be open here.` : ''}`,
      rows,
    }
  },
}

async function measure(
  { lab, trust, smallUpstream, quick }: Bench,
  peer: Peer,
  connections: number,
): Promise<Row> {
  const port = await freePort()
  const { file } = writeRequests(lab, `idle-${peer.name}`, [requestText({ token: trust.mint('ES256') })])
  const ready = join(lab.directory, `idle-${port}.ready`)
  const running = peer.start({ lab, trust, port, upstreamPort: smallUpstream })
  try {
    await listening(port)
    await sleep(500)
    const rssBefore = residentMegabytes(running.pid)
    const client = lab.ask(join(import.meta.dirname, '../load/idle-client.ts'), {
      port,
      connections,
      file,
      ready,
    } satisfies IdleLoad)
    while (!existsSync(ready)) await Promise.race([sleep(50), client])
    const open = Number(readFileSync(ready, 'utf8'))
    await sleep(1000)
    const before = cpuMicroseconds(running.pid)
    const seconds = quick ? 1 : 5
    await sleep(seconds * 1000)
    const idleCpuPercent = (cpuMicroseconds(running.pid) - before) / (seconds * 1e4)
    const rss = residentMegabytes(running.pid)
    rmSync(ready)
    await client
    const kilobytesEach = ((rss - rssBefore) * 1000) / open
    return { name: peer.name, figures: { connections: open, rssBefore, rss, kilobytesEach, idleCpuPercent } }
  } finally {
    await running.stop()
  }
}

function fileLimit(): number {
  return Number(/Max open files\s+\d+\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1] ?? 1024)
}
