/**
 * The suite's own load generator, a process of its own: `node client-process.ts JSON`, see `LoadOptions`.
 *
 * Without a rate each connection sends its next request as soon as it is answered. With a rate, requests become due in
 * steps of a millisecond; one that finds no idle connection waits, and its waiting counts as latency, so that a proxy
 * that stalls cannot hide it by slowing the load down. Prints a `LoadReport`.
 *
 * @module
 */
import { readFileSync } from 'node:fs'
import { SEPARATOR } from '../lab/requests.ts'
import { quantile } from '../lab/statistics.ts'
import { type Answer, type ClientConnection, openConnection } from './connection.ts'
import type { LoadOptions } from './load.ts'

const {
  port,
  requests,
  connections,
  seconds,
  rate,
  start = 0,
  pauseMs = 0,
}: LoadOptions = JSON.parse(process.argv[2] ?? '')
const texts = readFileSync(requests.file, 'latin1').split(SEPARATOR)
const order =
  requests.orderFile === undefined
    ? undefined
    : readFileSync(requests.orderFile, 'latin1').split('\n').map(Number)

/** What a connection does after an answer. */
type Next = (connection: ClientConnection, answer: Answer | undefined) => void

const statuses: Record<string, number> = {}
const latencies: number[] = []
let [refused, failed, bytes, turn] = [0, 0, 0, start]
const began = performance.now()
const ends = began + seconds * 1000
const all = Array.from({ length: connections }, () => openConnection(port))

function nextText(): string {
  const at = turn++
  return texts[order === undefined ? at % texts.length : (order[at % order.length] ?? 0)] ?? ''
}

/** Sends the next request; latency counts from `due`. */
function send(connection: ClientConnection, due: number, then: Next): void {
  connection.ask(nextText(), (answer) => {
    const now = performance.now()
    if (now >= ends) return // an answer after the end counts no more than one that did not come yet
    count(answer, (now - due) * 1000)
    then(connection, answer)
  })
}

function count(answer: Answer | undefined, microseconds: number): void {
  if (answer === undefined) {
    failed++
    return
  }
  latencies.push(microseconds)
  bytes += answer.bytes
  statuses[answer.status] = (statuses[answer.status] ?? 0) + 1
  if (answer.status >= 400) refused++
}

if (rate === undefined) {
  const ask = (connection: ClientConnection) => send(connection, performance.now(), again)
  const again: Next = (connection, answer) => {
    if (pauseMs > 0 && (answer?.status ?? 500) >= 400) setTimeout(ask, pauseMs, connection)
    else ask(connection)
  }
  for (const connection of all) ask(connection)
} else {
  const idle = [...all]
  const waiting: number[] = []
  const freed: Next = (connection) => {
    const due = waiting.shift()
    if (due === undefined) idle.push(connection)
    else send(connection, due, freed)
  }
  let released = 0
  const stepping = setInterval(() => {
    const now = performance.now()
    if (now >= ends) clearInterval(stepping)
    for (const due = ((now - began) * rate) / 1000; released < due; released++) {
      const connection = idle.shift()
      if (connection === undefined) waiting.push(now)
      else send(connection, now, freed)
    }
  }, 1)
}

setTimeout(() => {
  const elapsed = (performance.now() - began) / 1000
  const [p50, p99] = [quantile(latencies, 0.5), quantile(latencies, 0.99)]
  const counts = { requests: latencies.length, seconds: elapsed, bytes, refused, failed, statuses }
  process.stdout.write(JSON.stringify({ ...counts, p50, p99 }), () => process.exit())
}, seconds * 1000)
