/**
 * Parses large files in a worker thread, so that requests do not wait for them.
 * The thread is kept: its compiled code parses four times faster than that of a new thread.
 */
import { once } from 'node:events'
import { extname } from 'node:path'
import { MessageChannel, Worker } from 'node:worker_threads'
import type { Loaded } from './loaded.ts'

/** Parses the bytes of a file. A module exports it as `parse`. */
export type Parse<T> = (bytes: Uint8Array) => Loaded<readonly T[]>

/** YAML takes about 1 ms for each KiB. */
const MAX_INLINE_BYTES = 65_536
/** A larger file leaves hundreds of megabytes in its thread, which ends with it. */
const MAX_KEPT_BYTES = 1_048_576

let kept: Worker | undefined

/**
 * Parses a file, in a thread if it is large: batches of its items, or the problems.
 *
 * @param moduleUrl - of the module that exports `parse`
 * @throws when the thread fails, as it does without memory
 */
export async function* parseBatches<T>(
  parse: Parse<T>,
  moduleUrl: string,
  bytes: Uint8Array,
): AsyncGenerator<Loaded<readonly T[]>> {
  if (bytes.length <= MAX_INLINE_BYTES) {
    yield parse(bytes)
    return
  }
  const isKept = bytes.length <= MAX_KEPT_BYTES
  if (isKept) kept ??= startThread()
  const thread = isKept && kept ? kept : startThread()
  const { port1: port, port2 } = new MessageChannel()
  const failed = new AbortController()
  port.once('close', () => failed.abort())
  thread.postMessage({ moduleUrl, bytes, port: port2 }, [port2])
  try {
    for (;;) {
      const message = once(port, 'message', failed)
      // One batch on each request: messages that arrive together would be deserialized in one turn of the event loop.
      port.postMessage('next')
      const [batch]: Loaded<readonly T[]>[] = await message
      if (batch === undefined || (batch.ok && batch.value.length === 0)) return
      yield batch
    }
  } catch (error) {
    if (kept === thread) kept = undefined
    throw error
  } finally {
    port.close()
    if (!isKept) await thread.terminate()
  }
}

function startThread(): Worker {
  // `.ts` in a checkout under the test loader, `.js` in dist.
  const thread = new Worker(new URL(`./parse-worker${extname(import.meta.url)}`, import.meta.url))
  thread.on('error', () => {}) // closes the ports, which fails the files in progress
  thread.unref()
  return thread
}
