/** How much memory is still in use when something has been done. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect: () => void = runInNewContext('gc')

/** Bytes of JavaScript's memory that `work` has taken and not left to be collected. */
export function keptMemory(work: () => void): number {
  const before = usedHeap()
  work()
  return usedHeap() - before
}

/** Bytes of JavaScript's memory that are in use. */
export function usedHeap(): number {
  collect()
  return process.memoryUsage().heapUsed
}
