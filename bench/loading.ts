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
import { type ReadySidecar, startUntilReady } from './process.ts'
import { fileStore, postgresStore, replaceFile, type Store } from './stores.ts'
import { MeasuredTurns } from './turns.ts'

const CREDENTIALS = 50_000
/** They make a file just under 64 KiB, the largest that is parsed without a thread. */
const CREDENTIALS_OF_SMALL_FILE = 476
const REVOCATIONS = 100_000
const RATE = 2000
const CONNECTIONS = 50
const MAX_CHANGE_MS = 30_000

export async function loading(bench: Bench): Promise<Section> {
  const { lab, trust, skip } = bench
  const other = trust.addLogin('other')
  const common = { directory: lab.directory, login: trust.login, other }
  const token = trust.mint({ sub: other.accountId, client_id: other.accessKey })
  const small = await fileStore({ ...common, further: CREDENTIALS_OF_SMALL_FILE })
  const large = await fileStore({ ...common, further: CREDENTIALS })
  const rows = [
    await ofCredentials(bench, { name: 'file just under 64 KiB', store: small, token }),
    await ofCredentials(bench, { name: `${CREDENTIALS} credentials, file`, store: large, token }),
    await ofRevocations(bench),
  ]
  const database = await postgresStore({ ...common, further: CREDENTIALS })
  if (database === undefined) {
    skip('PostgreSQL: there is no server for this machine')
  } else {
    const name = `${CREDENTIALS} credentials, PostgreSQL`
    rows.push(await ofCredentials(bench, { name, store: database, token }))
    await database.close()
  }
  return { title: 'Large lists', rows }
}

interface StoreRow {
  readonly name: string
  readonly store: Store
  /** Of the credential that is disabled. */
  readonly token: string
}

async function ofCredentials(bench: Bench, { name, store, token }: StoreRow): Promise<Row> {
  const turns = new MeasuredTurns(bench.lab.directory)
  const withStore = { ...bench, trust: { ...bench.trust, flags: store.flags } }
  const sidecar = await startUntilReady(withStore, turns.env)
  try {
    await turns.restartSettled()
    const activeMs = await untilRefused(sidecar.port, token, () => store.setDisabled(true))
    await reloadAll(sidecar)
    const { longest } = turns.read()
    const peak = peakMegabytes(sidecar.running)
    await sleep(bench.quick ? 3000 : 60_000)
    const figures = {
      'ready ms': sidecar.readyMs,
      'active ms': activeMs,
      'longest turn ms': longest,
      'peak MB': peak,
      'RSS MB': residentMegabytes(sidecar.running),
    }
    return { name, figures }
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
    const options = { port, requests, connections: CONNECTIONS, rate: RATE, seconds }
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
    const figures: Figures = {
      'ready ms': readyMs,
      'active ms': activeMs,
      'longest turn ms': turns.read().longest,
      'peak MB': peakMegabytes(running),
      'RSS MB': residentMegabytes(running),
      'p99 quiet, ms': quiet,
      'p99 ms': beside,
      'p99 to quiet': beside / quiet,
    }
    return { name: `${REVOCATIONS} revocations, file`, figures }
  } finally {
    await running.stop()
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
