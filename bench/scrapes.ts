/** The scenario of many upstreams: scrapes of `/metrics`, and the samples of the status page. */
import { writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Figures, Row, Section } from './compare.ts'
import { cpuMicroseconds } from './lab.ts'
import { type Peer, sidecar } from './peers.ts'
import { type ReadySidecar, startUntilReady } from './process.ts'
import { MAIN } from './trust.ts'
import { MeasuredTurns } from './turns.ts'

export const MANY_UPSTREAMS = 500
export const SOME_UPSTREAMS = 50
/** The names of the rows. */
export const UNSEEN_PAGE = `status page for a minute, nobody looks, ${MANY_UPSTREAMS} upstreams`
export const SEEN_PAGE = `status page for 5 s, somebody looks, ${MANY_UPSTREAMS} upstreams`
const LOOPBACK = { host: '127.0.0.1' }
/** As often as the status page asks. */
const LOOK_MS = 5000

export async function scrapes(bench: Bench): Promise<Section> {
  const rows: Row[] = []
  for (const upstreams of [MANY_UPSTREAMS, SOME_UPSTREAMS]) {
    rows.push(...(await withUpstreams(bench, upstreams)))
  }
  return { title: 'Scrapes and the status page with many upstreams', rows }
}

async function withUpstreams(bench: Bench, count: number): Promise<Row[]> {
  const { lab, quick, smallUpstream } = bench
  const routes = Array.from({ length: count }, (_, index) => ({
    prefix: index === 0 ? '/' : `/service-${index}/`,
    url: `http://127.0.0.1:${smallUpstream}`,
  }))
  const config = join(lab.directory, `${count}-upstreams.yaml`)
  writeFileSync(config, JSON.stringify({ upstreams: routes, listen: LOOPBACK, admin: LOOPBACK }))
  const peerWith = (settings: Readonly<Record<string, string>>): Peer => ({
    ...sidecar,
    start: ({ lab, node, trust, port }) =>
      lab.run(0, node, [MAIN, 'serve', '--config', config, ...trust.flags], {
        ...settings,
        SIDECAR_LISTEN_PORT: String(port),
      }),
  })
  const turns = new MeasuredTurns(lab.directory)
  const started = await startUntilReady(bench, turns.env, peerWith)
  const { adminPort } = started
  try {
    const page = count === MANY_UPSTREAMS ? await statusPage(bench, started, turns) : []
    const figures = await costOf(started, turns, quick ? 3 : 20, () => get(adminPort, '/metrics'))
    const bytes = await get(adminPort, '/metrics')
    const scrape = {
      name: `scrape, ${count} upstreams`,
      figures: { ...figures, 'compressed KB': bytes / 1000 },
    }
    return [...page, scrape]
  } finally {
    await started.running.stop()
  }
}

/** What the samples of the page cost. While nobody looks, there is one a minute. */
async function statusPage({ quick }: Bench, started: ReadySidecar, turns: MeasuredTurns): Promise<Row[]> {
  const unseen = await costOf(started, turns, 1, () => sleep(quick ? 3000 : 65_000))
  const seen = await costOf(started, turns, quick ? 1 : 4, async () => {
    await get(started.adminPort, '/status.json')
    await sleep(LOOK_MS)
  })
  return [
    { name: UNSEEN_PAGE, figures: unseen },
    { name: SEEN_PAGE, figures: seen },
  ]
}

/** Does something so many times. The CPU time is that of one time. */
async function costOf(
  { running }: ReadySidecar,
  turns: MeasuredTurns,
  count: number,
  act: () => Promise<unknown>,
): Promise<Figures> {
  await turns.restartSettled()
  const before = cpuMicroseconds(running)
  for (let done = 0; done < count; done++) {
    await act()
  }
  const cpuMs = (cpuMicroseconds(running) - before) / 1000 / count
  const { longest } = await turns.readSettled()
  return { 'longest turn ms': longest, 'CPU ms': cpuMs }
}

/** Resolves with the bytes of the body, as they were sent. */
function get(port: number, path: string): Promise<number> {
  const headers = { 'Accept-Encoding': 'gzip', Connection: 'close' }
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, headers }, (response) => {
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      response.on('end', () => resolve(bytes))
    })
    asked.on('error', reject)
    asked.end()
  })
}
