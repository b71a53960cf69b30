/**
 * Loaded into the measured process by `--import`: writes what turns of its event loop take of CPU time to
 * the file `BENCH_TURNS_FILE`, in milliseconds. Begins anew, within 0.1 s, once that file is removed.
 *
 *   p99, longest  of the turns
 *   wait          of 100 requests that come at any time, 99 wait less for the turn in progress to end,
 *                 if the process has a core of its own
 */
import { existsSync, renameSync, writeFileSync } from 'node:fs'
import { createHistogram } from 'node:perf_hooks'
import { isMainThread } from 'node:worker_threads'

const file = process.env.BENCH_TURNS_FILE
const CHECK_MS = 100

/** Node 20 can only tell the CPU time of all threads of the process together. */
const cpuUsage = process.threadCpuUsage?.bind(process) ?? process.cpuUsage.bind(process)

let before = cpuUsage()
let beganMs = performance.now()
const microseconds = createHistogram()
/** How many turns took so many tenths of a millisecond. */
const tenths = new Float64Array(1000)

/**
 * An immediate without a reference runs at the end of each turn,
 * and does not keep the loop from waiting for events.
 */
function measureTurn() {
  const now = cpuUsage()
  const taken = now.user - before.user + now.system - before.system
  microseconds.record(Math.max(1, taken))
  tenths[Math.min(tenths.length - 1, Math.floor(taken / 100))]++
  before = now
  setImmediate(measureTurn).unref()
}

/** A request waits longer than `tenth` if it comes while a turn has more than that to go. */
function waitMs() {
  const rareMs = (performance.now() - beganMs) / 100
  let longer = 0
  let waitingMs = 0
  for (let tenth = tenths.length - 1; tenth >= 0; tenth--) {
    waitingMs += longer / 10
    longer += tenths[tenth]
    if (waitingMs > rareMs) {
      return tenth / 10
    }
  }
  return 0
}

function report() {
  if (!existsSync(file)) {
    microseconds.reset()
    tenths.fill(0)
    beganMs = performance.now()
  }
  const [p99, longest] = [microseconds.percentile(99) / 1000, microseconds.max / 1000]
  const unfinished = `${file}.new`
  writeFileSync(unfinished, JSON.stringify({ p99, longest, wait: waitMs() }))
  renameSync(unfinished, file)
}

if (isMainThread) {
  measureTurn()
  setInterval(report, CHECK_MS).unref()
}
