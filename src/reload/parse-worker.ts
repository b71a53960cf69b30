/**
 * The worker thread of `parseBatches`.
 * In: a module, the bytes of a file, and a port. Out, on the port: a batch for each message, the last one empty; or the problems.
 */
import { type MessagePort, parentPort } from 'node:worker_threads'
import type { Parse } from './parse-thread.ts'

interface Job {
  readonly moduleUrl: string
  readonly bytes: Uint8Array
  readonly port: MessagePort
}

/** About 1 ms to deserialize and to index. */
const BATCH = 500

parentPort?.on('message', async ({ moduleUrl, bytes, port }: Job) => {
  const { parse }: { parse: Parse<unknown> } = await import(moduleUrl)
  const parsed = parse(bytes)
  let sent = 0
  port.on('message', () => {
    port.postMessage(parsed.ok ? { ...parsed, value: parsed.value.slice(sent, sent + BATCH) } : parsed)
    sent += BATCH
  })
})
