/**
 * Measures turns of the event loop by the CPU time of the main thread, which no other process
 * and no other thread lengthens.
 */
import { existsSync, readFileSync } from 'node:fs'

const THREAD_TIMES = `/proc/self/task/${process.pid}/schedstat`

/** For the option `skip` of a test: false, or why it is skipped. */
export const withoutThreadTimes = existsSync(THREAD_TIMES)
  ? false
  : 'the CPU time of a thread is known on Linux'

export const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

/** Returns the CPU time of the longest turn in which the main thread did a part of the work. */
export async function longestTurnMs(work: Promise<unknown>): Promise<number> {
  let isOver = false
  const noteEnd = () => {
    isOver = true
  }
  work.then(noteEnd, noteEnd)
  let longestMs = 0
  let beforeMs = mainThreadMs()
  while (!isOver) {
    await nextTurn()
    const afterMs = mainThreadMs()
    longestMs = Math.max(longestMs, afterMs - beforeMs)
    beforeMs = afterMs
  }
  await work
  return longestMs
}

function mainThreadMs(): number {
  const [nanoseconds] = readFileSync(THREAD_TIMES, 'utf8').split(' ')
  return Number(nanoseconds) / 1e6
}
