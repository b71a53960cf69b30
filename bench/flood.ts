/**
 * The scenario of clients that send the next request as soon as they have an answer, whatever it is:
 * strangers beside good requests at a constant rate, and many more clients with tokens than an upstream
 * serves at once. The longest turn of the event loop is told in CPU time of the main thread (`turns.mjs`).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Figures, Row, Section } from './compare.ts'
import { listening } from './lab.ts'
import { load, loadWithAnyAnswers, requestText, writeRequests } from './load.ts'
import { sidecarWith } from './peers.ts'
import { MeasuredTurns } from './turns.ts'

const STRANGER_CONNECTIONS = 3000
const GOOD_RATE = 200
const GOOD_CONNECTIONS = 100
const FEW_CLIENTS = 500
const MANY_CLIENTS = 5000
/** The names of the rows. */
export const FEW = `${FEW_CLIENTS} clients with tokens`
export const MANY = `${MANY_CLIENTS} clients with tokens`
export const STRANGERS = `${GOOD_RATE} good requests/s beside ${STRANGER_CONNECTIONS} strangers`
/** In this time, a load gets going. */
const SETTLE_MS = 1000

export async function flood(bench: Bench): Promise<Section> {
  const { lab, trust, quick } = bench
  const turns = new MeasuredTurns(lab.directory)
  const port = await freePort()
  const options = { ...bench, port, upstreamPort: bench.smallUpstream }
  const running = await sidecarWith(turns.env).start(options)
  const good = writeRequests(lab, [requestText(trust.mint())])
  const bad = writeRequests(lab, [requestText(undefined)], 'refusal')
  const seconds = quick ? 6 : 10

  /** Of the load that has begun, until shortly before its clients all leave at once. */
  async function longestTurn(): Promise<Figures> {
    await sleep(1000 * seconds - SETTLE_MS)
    return { 'longest turn ms': turns.read().longest }
  }

  async function besideStrangers(): Promise<Row> {
    await turns.restartSettled()
    const strangers = loadWithAnyAnswers(lab, {
      port,
      requests: bad,
      connections: STRANGER_CONNECTIONS,
      seconds,
    })
    const turn = longestTurn()
    await sleep(SETTLE_MS)
    const goodSeconds = seconds - 3
    const options = {
      port,
      requests: good,
      connections: GOOD_CONNECTIONS,
      rate: GOOD_RATE,
      settleSeconds: 1,
      seconds: goodSeconds,
      isPreferred: true,
    }
    const { inTime, p99 } = await loadWithAnyAnswers(lab, options)
    const { requests } = await strangers
    const figures = {
      'in 1 s %': (100 * inTime) / (GOOD_RATE * goodSeconds),
      'p99 ms': inTime > 0 ? p99 : Number.NaN,
      'requests/s': requests / seconds,
      ...(await turn),
    }
    return { name: STRANGERS, figures }
  }

  async function withTokens(name: string, connections: number): Promise<Row> {
    await turns.restartSettled()
    const loading = loadWithAnyAnswers(lab, { port, requests: good, connections, seconds })
    const turn = await longestTurn()
    const report = await loading
    const succeeded = report.requests - report.refused
    const figures = { 'requests/s': succeeded / report.seconds, ...turn }
    return { name, figures }
  }

  try {
    await listening(port)
    await load(lab, { port, requests: good, connections: GOOD_CONNECTIONS, seconds: bench.warmUpSeconds })
    const rows = [
      await withTokens(FEW, FEW_CLIENTS),
      await withTokens(MANY, MANY_CLIENTS),
      await besideStrangers(),
    ]
    return { title: 'Clients that send again at once', rows }
  } finally {
    await running.stop()
  }
}
