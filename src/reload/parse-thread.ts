/**
 * Reads files of rows; parses large ones in a worker thread (its entry is this module), so that requests do not wait.
 * A file that needs more time or memory than any file of that size ends its thread, and cannot be used.
 * The thread is reused: its compiled code parses four times faster than that of a new thread.
 */
import { once } from 'node:events'
import { MessageChannel, type MessagePort, parentPort, Worker } from 'node:worker_threads'
import { type Loaded, type ReadFile, readRegularFile } from './files.ts'

/** A module exports it as `parse`. Problems are lines, `line:column: path message`. */
export type Parse<T> = (bytes: Uint8Array) => Loaded<readonly T[]>

/** About 50,000 credentials, or 130,000 revocations. */
export const MAX_FILE_BYTES = 8_388_608
/** YAML takes about 1 ms for each KiB. */
const MAX_INLINE_BYTES = 65_536
/** A larger file leaves hundreds of megabytes in its thread, so it gets a thread of its own. */
const MAX_REUSED_THREAD_BYTES = 1_048_576
/** Rows that take about 1 ms to deserialize and to add. */
const BATCH = 500

/** YAML needs up to 1 s (of a core) and 50 MB for each MiB, more only if it is made to. */
const MAX_SECONDS = 30
const MAX_HEAP_MB = 640

let reusedThread: Worker | undefined

/**
 * Reads the file, or returns its problems, each with the path. Never rejects.
 * @param moduleUrl - of the module that exports `parse`
 * @param add - called with each row
 */
export async function readRows<T>(
  path: string,
  parse: Parse<T>,
  moduleUrl: string,
  add: (row: T) => void,
): Promise<ReadFile> {
  const read = await readRegularFile(path, MAX_FILE_BYTES)
  if (!read.ok) return read
  const { bytes } = read
  const refused = (problems: readonly string[]): ReadFile => ({ ok: false, problems })
  try {
    const batches = bytes.length <= MAX_INLINE_BYTES ? [parse(bytes)] : parseInThread<T>(moduleUrl, bytes)
    for await (const batch of batches) {
      if (!batch.ok) return refused(batch.problems.map((problem) => `${path}:${problem}`))
      for (const row of batch.value) add(row)
    }
    return read
  } catch {
    return refused([`${path}: cannot be parsed within ${MAX_SECONDS} s and ${MAX_HEAP_MB} MB of memory`])
  }
}

async function* parseInThread<T>(moduleUrl: string, bytes: Buffer): AsyncGenerator<Loaded<readonly T[]>> {
  const isReused = bytes.length <= MAX_REUSED_THREAD_BYTES
  const thread = (isReused && reusedThread) || startThread()
  if (isReused) reusedThread = thread
  const { port1: port, port2 } = new MessageChannel()
  const failed = new AbortController()
  port.once('close', () => failed.abort())
  const timer = setTimeout(() => void thread.terminate(), MAX_SECONDS * 1000) // closes the port
  thread.postMessage({ moduleUrl, bytes, port: port2 }, [port2])
  try {
    for (;;) {
      const message = once(port, 'message', failed)
      // One batch per request: messages that arrive together are deserialized in one turn of the event loop.
      port.postMessage('next')
      const [batch]: Loaded<readonly T[]>[] = await message
      if (batch === undefined || (batch.ok && batch.value.length === 0)) return
      yield batch
    }
  } catch (error) {
    if (reusedThread === thread) reusedThread = undefined
    throw error
  } finally {
    clearTimeout(timer)
    port.close()
    if (!isReused) await thread.terminate()
  }
}

function startThread(): Worker {
  const resourceLimits = { maxOldGenerationSizeMb: MAX_HEAP_MB }
  const thread = new Worker(new URL(import.meta.url), { resourceLimits })
  thread.on('error', () => {}) // closes the ports, which fails the files in progress
  thread.unref()
  return thread
}

interface Job {
  readonly moduleUrl: string
  readonly bytes: Uint8Array
  readonly port: MessagePort
}

// In the thread: sends a batch for each message of the port, the last of them empty, or the problems.
parentPort?.on('message', async ({ moduleUrl, bytes, port }: Job) => {
  const { parse }: { parse: Parse<unknown> } = await import(moduleUrl)
  const parsed = parse(bytes)
  let sent = 0
  port.on('message', () => {
    port.postMessage(parsed.ok ? { ...parsed, value: parsed.value.slice(sent, sent + BATCH) } : parsed)
    sent += BATCH
  })
})
