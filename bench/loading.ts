/**
 * The scenario of large lists: how soon a sidecar that has them is ready and a change is active, what it
 * holds in memory, and how long requests wait meanwhile.
 */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Figures, Row, Section } from './compare.ts'
import { ask, peakMegabytes, residentMegabytes } from './lab.ts'
import { load, requestText, writeRequests } from './load.ts'
import { limitMemory } from './memory-limit.ts'
import { type ReadySidecar, startUntilReady } from './process.ts'
import { fileStore, postgresStore, replaceFile, type Store } from './stores.ts'
import { MeasuredTurns } from './turns.ts'

const CREDENTIALS = 50_000
/** They make a file just under 64 KiB, the largest that is parsed without a thread. */
const CREDENTIALS_OF_SMALL_FILE = 476
const REVOCATIONS = 100_000
/** The names of the rows. */
export const SMALL_FILE = 'file just under 64 KiB'
export const LARGE_FILE = `${CREDENTIALS} credentials, file`
export const DATABASE = `${CREDENTIALS} credentials, PostgreSQL`
export const MANY_REVOCATIONS = `${REVOCATIONS} revocations, file`
const RATE = 2000
const CONNECTIONS = 50
const MAX_CHANGE_MS = 30_000
const WARM_UP_SCRAPES = 20

/** As in the manifests. */
const MEMORY_LIMIT_BYTES = 384 * 2 ** 20

export async function loading(bench: Bench): Promise<Section> {
  const limited = limitMemory(bench.lab.directory, bench.node, MEMORY_LIMIT_BYTES)
  if (limited === undefined) {
    bench.skip('the memory limit of large lists: no cgroup can be made here')
    return await loadingWith(bench)
  }
  try {
    return await loadingWith({ ...bench, node: limited.script })
  } finally {
    limited.remove()
  }
}

async function loadingWith(bench: Bench): Promise<Section> {
  const { lab, trust, skip } = bench
  const other = trust.addLogin('other')
  const common = { directory: lab.directory, login: trust.login, other }
  const token = trust.mint({ sub: other.accountId, client_id: other.accessKey })
  const small = await fileStore({ ...common, further: CREDENTIALS_OF_SMALL_FILE })
  const large = await fileStore({ ...common, further: CREDENTIALS })
  const rows = [
    await ofCredentials(bench, { name: SMALL_FILE, store: small, token }),
    await ofCredentials(bench, { name: LARGE_FILE, store: large, token, restSeconds: bench.quick ? 3 : 60 }),
    await ofRevocations(bench),
  ]
  const database = await postgresStore({ ...common, further: CREDENTIALS })
  if (database === undefined) {
    skip('PostgreSQL: there is no server for this machine')
  } else {
    rows.push(await ofCredentials(bench, { name: DATABASE, store: database, token }))
    await database.close()
  }
  return { title: 'Large lists', rows }
}

interface StoreRow {
  readonly name: string
  readonly store: Store
  /** Of the credential that is disabled. */
  readonly token: string
  /** How long nothing happens after the reload, until memory is read once more. */
  readonly restSeconds?: number
}

async function ofCredentials(bench: Bench, { name, store, token, restSeconds }: StoreRow): Promise<Row> {
  const turns = new MeasuredTurns(bench.lab.directory)
  const withStore = { ...bench, trust: { ...bench.trust, flags: store.flags } }
  const sidecar = await startUntilReady(withStore, turns.env)
  try {
    await warmUp(bench, sidecar)
    await turns.restartSettled()
    const activeMs = await untilRefused(sidecar.port, token, () => store.setDisabled(true))
    await reloadAll(sidecar)
    const { longest } = await turns.readSettled()
    const figures: Figures = {
      'ready ms': sidecar.readyMs,
      'active ms': activeMs,
      'longest turn ms': longest,
      'peak MB': peakMegabytes(sidecar.running),
      'RSS MB': residentMegabytes(sidecar.running),
    }
    if (restSeconds === undefined) {
      return { name, figures }
    }
    await sleep(restSeconds * 1000)
    const later = { 'RSS later MB': residentMegabytes(sidecar.running) }
    return { name, figures: { ...figures, ...later } }
  } finally {
    await sidecar.running.stop()
  }
}

async function ofRevocations(bench: Bench): Promise<Row> {
  const { lab, trust } = bench
  const jti = 'revoked-later'
  const token = trust.mint({ jti })
  const lines = Array.from({ length: REVOCATIONS }, () => `  - jti: ${randomUUID()}\n`)
  const text = `revocations:\n${lines.join('')}`
  const file = join(lab.directory, 'revocations.yaml')
  replaceFile(file, text)
  const turns = new MeasuredTurns(lab.directory)
  const sidecar = await startUntilReady(bench, { ...turns.env, SIDECAR_REVOCATIONS_FILE: file })
  const { port, running, readyMs } = sidecar
  const requests = writeRequests(lab, [requestText(trust.mint())])
  const p99During = async (seconds: number) => {
    const options = { port, requests, connections: CONNECTIONS, rate: RATE, seconds, isPreferred: true }
    return (await load(lab, options)).p99
  }
  try {
    await p99During(bench.warmUpSeconds)
    const seconds = bench.quick ? 3 : 10
    const quiet = await p99During(seconds)
    await turns.restartSettled()
    const loaded = p99During(seconds)
    await sleep(1000)
    const activeMs = await untilRefused(port, token, async () =>
      replaceFile(file, `${text}  - jti: ${jti}\n`),
    )
    const beside = await loaded
    const { longest } = await turns.readSettled()
    const figures: Figures = {
      'ready ms': readyMs,
      'active ms': activeMs,
      'longest turn ms': longest,
      'peak MB': peakMegabytes(running),
      'RSS MB': residentMegabytes(running),
      'p99 quiet, ms': quiet,
      'p99 ms': beside,
      'p99 to quiet': beside / quiet,
    }
    return { name: MANY_REVOCATIONS, figures }
  } finally {
    await running.stop()
  }
}

/** V8 compiles what a request and a scrape run, which takes long turns of its own. */
async function warmUp({ lab, trust, quick }: Bench, { port, adminPort }: ReadySidecar): Promise<void> {
  const requests = writeRequests(lab, [requestText(trust.mint())])
  await load(lab, { port, requests, connections: 10, rate: 1000, seconds: quick ? 1 : 3 })
  for (let scrape = 0; scrape < WARM_UP_SCRAPES; scrape++) {
    await ask(adminPort, '/metrics')
  }
}

/** Makes a change by which a token becomes invalid. Resolves with the milliseconds until it is refused. */
async function untilRefused(port: number, token: string, change: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await change()
  while (true) {
    const { status } = await ask(port, '/', token)
    const took = performance.now() - began
    if (status >= 400) {
      return took
    }
    if (took > MAX_CHANGE_MS) {
      throw new Error('a change does not become active')
    }
    await sleep(10)
  }
}

/** Lets the sidecar read everything again: of a database, a change makes it read the change alone. */
async function reloadAll({ running, adminPort }: ReadySidecar): Promise<void> {
  const before = await reloadsOf(adminPort)
  for (const pid of running.pids) {
    process.kill(pid, 'SIGHUP')
  }
  const began = performance.now()
  while ((await reloadsOf(adminPort)) === before) {
    if (performance.now() - began > MAX_CHANGE_MS) {
      throw new Error('a reload does not end')
    }
    await sleep(100)
  }
}

/** How often credentials were loaded. */
export async function reloadsOf(adminPort: number): Promise<number> {
  const { body } = await ask(adminPort, '/metrics')
  const pattern = /^auth_sidecar_reloads_total\{subject="credentials",result="ok"\} (\d+)$/m
  return Number(pattern.exec(body)?.[1])
}
