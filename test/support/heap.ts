/** Measures the heap of this process. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
// The flag adds `gc` to new contexts only.
const collectGarbage: () => void = runInNewContext('gc')

/** Bytes that are in use after a garbage collection. */
export function usedHeap(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}
