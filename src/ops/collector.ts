/**
 * How the garbage collector works in a process that serves requests.
 *
 * Each piece of an upload is a buffer outside of the heap, and every 64 MB of them V8 marks the whole heap in threads
 * of its own, although nothing in there is garbage: that was half of the cost of an upload. Without those threads,
 * marking goes on in small steps between requests, and is seldom needed at all, as buffers that die young are found
 * without it.
 *
 * @module
 */
import { setFlagsFromString } from 'node:v8'

/** Sets the collector up. To be called before anything is served; it concerns the whole process. */
export function tuneCollector(): void {
  setFlagsFromString('--no-concurrent-marking')
}
