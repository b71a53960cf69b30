/** The scenarios of fair use: what limits cost a request, what an account holds, and how exact pacing is. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Row, Section } from './compare.ts'
import { compare } from './compare.ts'
import { ask, type Lab, listening, withPeakMemory } from './lab.ts'
import { load, loadWithAnyAnswers, requestText, writeRequests } from './load.ts'
import type { ObjectLoad, ObjectReport } from './object-client.ts'
import { sidecarWith, startObjectUpstream } from './peers.ts'
import { entrant } from './requests.ts'
import type { Trust } from './trust.ts'

const MB = 1e6
const GIB = 2 ** 30
const PACED_BYTES_PER_SECOND = 10 * MB

let files = 0

/** Writes limits to a file. Returns the setting that names it. */
export function limitsSetting({ directory }: Lab, limits: string) {
  const file = join(directory, `${files++}.fair-use.yaml`)
  writeFileSync(file, limits)
  return { SIDECAR_FAIR_USE_FILE: file }
}

/** No limit is ever reached. */
const HIGH =
  '{ requestsPerSecond: 1000000, inFlight: 1000000, uploadBytesPerSecond: 1000000000000, downloadBytesPerSecond: 1000000000000 }'

/** A cached token: of an account with limits, of one without, and where there are no limits at all. */
export async function limits(bench: Bench): Promise<Section> {
  const { lab, trust } = bench
  const requests = writeRequests(lab, [requestText(trust.mint())])
  const peers = {
    'no limits': sidecarWith(),
    'account without limits': sidecarWith(limitsSetting(lab, `accounts: { other: ${HIGH} }`)),
    'account with limits': sidecarWith(limitsSetting(lab, `default: ${HIGH}`)),
  }
  const entrants = Object.entries(peers).map(([label, peer]) => entrant(bench, peer, { requests }, label))
  return { title: 'Limits of accounts', rows: await compare(bench, entrants) }
}

/** Collects the garbage of a sidecar on SIGUSR2. */
const COLLECT = 'import{getHeapSnapshot}from"node:v8";process.on("SIGUSR2",()=>getHeapSnapshot().destroy())'
/** An account pays its request back in this time. */
const QUIET_SECONDS = 90

/**
 * The heap that accounts hold which have sent a request, and once they are quiet.
 * Another sidecar without limits receives the same requests.
 */
export async function accounts(bench: Bench): Promise<Section> {
  const count = bench.quick ? 10_000 : 100_000
  const { lab, trust } = bench
  const names = Array.from({ length: count }, (_, at) => `account-${at}`)
  const texts = names.map((name) => requestText(trust.mint({ sub: name, client_id: 'k' })))
  const requests = writeRequests(lab, texts)
  const limits = `default: { requestsPerSecond: ${1 / QUIET_SECONDS}, burst: 1 }\naccounts: { account-0: { requestsPerSecond: 0 } }`
  const slow = limitsSetting(lab, limits)
  const issuer = await startIssuer(bench)
  const none = await heapsOf(bench, { issuer, requests, count })
  const limited = await heapsOf(bench, { issuer, requests, count, settings: slow })
  const figures = {
    'bytes each': (limited.used - none.used) / count,
    'bytes each, quiet': (limited.quiet - none.quiet) / count,
  }
  return { title: `Memory of ${count} accounts in use`, rows: [{ name: 'difference', figures }] }
}

/** Who trusts it needs no credentials: so many accounts would exceed the limit of a credentials file. */
async function startIssuer(bench: Bench): Promise<Trust> {
  const port = await freePort()
  const adminPort = await freePort()
  const peer = sidecarWith({ SIDECAR_ADMIN_PORT: String(adminPort) })
  await peer.start({ ...bench, port, upstreamPort: bench.smallUpstream })
  await listening(port)
  const jwksUrl = `http://127.0.0.1:${adminPort}/.well-known/jwks.json`
  return { ...bench.trust, flags: ['--keys-jwks-url', jwksUrl] }
}

interface HeapOptions {
  readonly issuer: Trust
  readonly requests: ReturnType<typeof writeRequests>
  readonly count: number
  readonly settings?: Readonly<Record<string, string>>
}

/** The growth of the heap by a request of each account, and what is left of it once all are quiet. */
async function heapsOf(bench: Bench, { issuer, requests, count, settings = {} }: HeapOptions) {
  const port = await freePort()
  const adminPort = await freePort()
  const running = await sidecarWith({
    SIDECAR_CACHE_MAX_TOKENS: '1',
    SIDECAR_ADMIN_PORT: String(adminPort),
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(COLLECT)}`,
    ...settings,
  }).start({ ...bench, trust: issuer, port, upstreamPort: bench.smallUpstream })
  /** The least of a few looks, because a look is work itself. */
  const heap = async () => {
    const looks: number[] = []
    for (let look = 0; look < 4; look++) {
      for (const pid of running.pids) {
        process.kill(pid, 'SIGUSR2')
      }
      await sleep(1000)
      const { body } = await ask(adminPort, '/metrics') // on a new connection: the process stops meanwhile
      looks.push(Number(/^nodejs_heap_size_used_bytes (\S+)/m.exec(body)?.[1]))
    }
    return Math.min(...looks)
  }
  const rate = 2000
  try {
    await listening(port)
    const one = writeRequests(bench.lab, [
      requestText(bench.trust.mint({ sub: 'account-0', client_id: 'k' })),
    ])
    await load(bench.lab, { port, requests: one, connections: 50, rate: 500, seconds: 3 })
    const before = await heap()
    // The last ones come from the first accounts again, and may be refused.
    const options = { port, requests, connections: 50, rate, seconds: count / rate + 1 }
    const { requests: answered, refused } = await loadWithAnyAnswers(bench.lab, options)
    if (answered - refused < count) {
      throw new Error(`the machine is too busy: ${answered - refused} of ${count} accounts were served`)
    }
    const used = (await heap()) - before
    await sleep((QUIET_SECONDS + 2) * 1000)
    return { used, quiet: (await heap()) - before }
  } finally {
    await running.stop()
  }
}

/** An object at a limit of 10 MB/s: how fast it moves, and the memory meanwhile. */
export async function pacing(bench: Bench): Promise<Section> {
  const { lab, trust, quick } = bench
  const upstreamPort = await startObjectUpstream(lab)
  const size = quick ? 2 ** 26 : GIB
  const rows: Row[] = []
  for (const direction of ['down', 'up'] as const) {
    const port = await freePort()
    const limit = direction === 'down' ? 'downloadBytesPerSecond' : 'uploadBytesPerSecond'
    const setting = limitsSetting(lab, `default: { ${limit}: ${PACED_BYTES_PER_SECOND} }`)
    const running = await sidecarWith(setting).start({ ...bench, port, upstreamPort })
    try {
      await listening(port)
      const options = { port, token: trust.mint(), direction, size, count: 1 } satisfies ObjectLoad
      const { result, memory } = await withPeakMemory(running, () => lab.ask('object-client.ts', options))
      const { seconds, bytes } = result as ObjectReport
      rows.push({
        name: `${size / 2 ** 20} MiB ${direction}`,
        figures: { 'MB/s': bytes / MB / seconds, ...memory },
      })
    } finally {
      await running.stop()
    }
  }
  return { title: 'Objects paced at 10 MB/s', rows }
}
