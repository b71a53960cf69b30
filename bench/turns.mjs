/**
 * Loaded into the measured process by `--import`: writes what turns of its event loop take of CPU time to
 * the file `BENCH_TURNS_FILE`, in milliseconds. Begins anew, within 0.1 s, once that file is removed.
 *
 *   p99, longest  of the turns
 *   wait          of 100 requests that come at any time, 99 wait less for the turn in progress to end,
 *                 if the process has a core of its own
 */
import { existsSync, openSync, readSync, renameSync, writeFileSync } from 'node:fs'
import { createHistogram } from 'node:perf_hooks'
import { isMainThread } from 'node:worker_threads'

const file = process.env.BENCH_TURNS_FILE
const CHECK_MS = 100

/** CPU time of the main thread so far, in microseconds. Node 20 cannot tell it. */
const cpuOfThread =
  process.threadCpuUsage === undefined ? createKernelClock() : () => total(process.threadCpuUsage())

const total = ({ user, system }) => user + system

/** What the kernel has counted: nanoseconds, the first word of `schedstat`. */
function createKernelClock() {
  const descriptor = openSync(`/proc/self/task/${process.pid}/schedstat`)
  const bytes = Buffer.alloc(64)
  return () => {
    process.cpuUsage() // the kernel counts up to now
    readSync(descriptor, bytes, 0, bytes.length, 0)
    return Number(bytes.latin1Slice(0, bytes.indexOf(' '))) / 1000
  }
}

let before = cpuOfThread()
let beganMs = performance.now()
const microseconds = createHistogram()
/** How many turns took so many tenths of a millisecond. */
const tenths = new Float64Array(1000)

/**
 * An immediate without a reference runs at the end of each turn,
 * and does not keep the loop from waiting for events.
 */
function measureTurn() {
  const now = cpuOfThread()
  const taken = now - before
  microseconds.record(Math.max(1, Math.round(taken)))
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
