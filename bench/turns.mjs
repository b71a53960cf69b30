/**
 * Loaded into the measured process by `--import`: writes the CPU time of its longest turn of the event loop,
 * in milliseconds, to the file `BENCH_TURNS_FILE`. Begins anew, within 0.1 s, once that file is removed.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'

const file = process.env.BENCH_TURNS_FILE
const CHECK_MS = 100

/** Node 20 can only tell the CPU time of all threads of the process together. */
const cpuUsage = process.threadCpuUsage?.bind(process) ?? process.cpuUsage.bind(process)

let before = cpuUsage()
let longestMs = 0

/**
 * An immediate without a reference runs at the end of each turn,
 * and does not keep the loop from waiting for events.
 */
function measureTurn() {
  const now = cpuUsage()
  longestMs = Math.max(longestMs, (now.user - before.user + now.system - before.system) / 1000)
  before = now
  setImmediate(measureTurn).unref()
}

function report() {
  if (!existsSync(file)) {
    longestMs = 0
  }
  writeFileSync(file, String(longestMs))
}

if (isMainThread) {
  measureTurn()
  setInterval(report, CHECK_MS).unref()
}
